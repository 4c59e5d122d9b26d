//go:build linux

package rootfs

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// pattern is a regular expression that is compiled when it is first needed. The
// program that this package is part of starts four times for each sandbox, and needs
// none of them in three.
type pattern func() *regexp.Regexp

func compiled(expression string) pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// credentialFiles are names of files in which well-known tools keep credentials. A
// nil pattern means that the name is enough; otherwise the content decides, because
// the same file often holds harmless settings only.
var credentialFiles = map[string]pattern{
	"id_rsa": nil, "id_dsa": nil, "id_ecdsa": nil, "id_ecdsa_sk": nil, "id_ed25519": nil, "id_ed25519_sk": nil,
	".netrc": nil, "_netrc": nil,
	".git-credentials": nil,
	".pypirc":          nil,
	".pgpass":          nil,
	".vault-token":     nil,
	".dockercfg":       nil,
	".htpasswd":        nil,
	".s3cfg":           nil, ".boto": nil, ".databrickscfg": nil,
	"kubeconfig":                           nil,
	"application_default_credentials.json": nil,
	"access_tokens.db":                     nil,
	"credentials.db":                       nil,
	"rclone.conf":                          nil,

	".npmrc": npmToken, "npmrc": npmToken,
	".yarnrc":           npmToken,
	".yarnrc.yml":       compiled(`(?mi)^[ \t]*npmAuth(Token|Ident)[ \t]*:[ \t]*\S`),
	"credentials":       compiled(`(?mi)^[ \t]*"?(token|aws_secret_access_key|aws_session_token|:rubygems_api_key|[a-z_]*password)"?[ \t]*[=:][ \t]*\S`),
	"credentials.toml":  compiled(`(?mi)^[ \t]*(token|secret-key)[ \t]*=[ \t]*"?\S`),
	"credentials.json":  compiled(`(?i)"(token|access_token|refresh_token|client_secret|private_key|accessToken|refreshToken)"\s*:\s*"\S`),
	".credentials.json": nil,
	"auth.json":         compiled(`(?i)"(http-basic|bearer|github-oauth|gitlab-token|access_token|refresh_token|OPENAI_API_KEY|key|token)"\s*:\s*["{]`),
	"hosts.yml":         compiled(`(?m)^[ \t]*oauth_token[ \t]*:[ \t]*\S`),
	"config.json":       compiled(`"(auth|identitytoken|registrytoken)"\s*:\s*"\S`),
	"config":            compiled(`(?m)^[ \t]*(client-key-data|token|password)[ \t]*:[ \t]*\S`), // kubeconfig under its usual name
	"pip.conf":          urlPassword,
	".condarc":          urlPassword,
	"settings.xml":      compiled(`(?i)<(password|passphrase|privateKey)>\s*[^<\s$]`),
	"gradle.properties": compiled(`(?mi)^[ \t]*\S*(password|token|secret)\S*[ \t]*[=:][ \t]*\S`),
	".terraformrc":      compiled(`(?m)^[ \t]*token[ \t]*=[ \t]*"\S`),
	".my.cnf":           compiled(`(?mi)^[ \t]*password[ \t]*=[ \t]*\S`),
	".env":              assignment, ".env.local": assignment, ".env.production": assignment, ".envrc": assignment,
}

var (
	npmToken    = compiled(`(?m)^[^#;\n]*(_authToken|_auth|_password)[ \t]*[= ][ \t]*"?[^\s$"]`) // ${VARIABLE} is no secret
	urlPassword = compiled(`(?m)^[^#;\n]*://[^/\s:@]*:[^/\s@]+@`)
	assignment  = compiled(`(?mi)^[ \t]*(export[ \t]+)?\w*(SECRET|TOKEN|PASSWORD|PASSWD|API_?KEY|PRIVATE_?KEY)\w*[ \t]*=[ \t]*["']?[^\s"'$]`)
)

// keyExtensions are extensions of files that hold private keys or vaults by their
// format.
var keyExtensions = []string{".p12", ".pfx", ".ppk", ".jks", ".keystore", ".kdbx", ".kdb", ".keytab"}

// textExtensions are extensions of files that are read in search of a private key.
// Sources of programs are not among them: they only speak of keys.
var textExtensions = []string{
	"", ".asc", ".cer", ".cert", ".cfg", ".conf", ".config", ".crt", ".env", ".gpg", ".ini", ".json", ".key", ".p8", ".pem",
	".pk8", ".priv", ".private", ".pub", ".rsa", ".sec", ".secret", ".toml", ".txt", ".yaml", ".yml",
}

// privateKey finds the armour of PEM (RFC 7468), OpenSSH and OpenPGP private keys,
// also as a JSON string. More than a bare mention: base64 has to follow.
var privateKey = compiled(`-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----(\s|\\[nr])(?s:.{0,300}?)[A-Za-z0-9+/=]{32}`)

// maxKeyFile is the size, in bytes, above which a file is no key or settings file.
const maxKeyFile = 64 << 10

// mayHold reports whether a file of that name has to be read.
func mayHold(name string, size int64) bool {
	if size <= 0 || size > maxKeyFile {
		return false
	}
	if p, ok := credentialFiles[name]; ok && p != nil {
		return true
	}
	return slices.Contains(textExtensions, extension(name))
}

// secretByName says what a file is that holds a credential whatever is in it.
func secretByName(name string) (string, bool) {
	if p, ok := credentialFiles[name]; ok && p == nil {
		return "is a credential file by its name", true
	}
	if slices.Contains(keyExtensions, extension(name)) {
		return "is a key store by its name", true
	}
	return "", false
}

// secretByContent says what a file's content gives away.
func secretByContent(name string, data []byte) (string, bool) {
	if holdsPrivateKey(data) {
		return "holds a private key", true
	}
	if p := credentialFiles[name]; p != nil && p().Match(data) {
		return "holds a credential", true
	}
	return "", false
}

// holdsPrivateKey looks for the words first: that is what makes it cheap.
func holdsPrivateKey(data []byte) bool {
	return bytes.Contains(data, []byte("PRIVATE KEY")) && privateKey().Match(data)
}

// extension is [path.Ext] in lower case, and "" for a dot file without another dot.
func extension(name string) string {
	return strings.ToLower(path.Ext(strings.TrimPrefix(name, ".")))
}
