package credential

import (
	"path"
	"strings"

	"tendril/fault"
)

// Source is where a secret is read, at each use. Exactly one of its fields is set.
type Source struct {
	Env     Variable `yaml:"env" json:"env,omitzero"`         // a variable of the Stem's environment
	File    Path     `yaml:"file" json:"file,omitzero"`       // a file that is the Stem's alone
	Command Command  `yaml:"command" json:"command,omitzero"` // what a command writes
	Age     Age      `yaml:"age" json:"age,omitzero"`         // a file that was encrypted with age
}

// Validate refuses a source that is none, or several.
func (s Source) Validate() error {
	set := 0
	for _, is := range []bool{s.Env != "", s.File != "", s.Command != nil, s.Age != Age{}} {
		if is {
			set++
		}
	}
	if set != 1 {
		return fault.New(fault.Invalid, "exactly one of env, file, command and age is needed").
			WithHint("say where the secret is read: {env: NAME}, {file: PATH}, {command: [PROGRAM, ..]} or {age: {file: PATH, identity: PATH}}")
	}
	if s.Command != nil {
		return s.Command.Validate()
	}
	if s.Age != (Age{}) {
		return s.Age.Validate()
	}
	return nil
}

// RefuseKey says why a secret has no place here.
func (Source) RefuseKey(key string) error { return refuseLiteral(key) }

// String says where the secret is read. Of a command it names the program alone.
func (s Source) String() string {
	switch {
	case s.Env != "":
		return "env " + string(s.Env)
	case s.File != "":
		return "file " + string(s.File)
	case len(s.Command) > 0:
		return "command " + s.Command[0]
	case s.Age != Age{}:
		return "age " + string(s.Age.File)
	}
	return "nothing"
}

// Variable is the name of an environment variable.
type Variable string

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

// UnmarshalText refuses what no shell could set. It does not repeat it: it may be the
// secret.
func (v *Variable) UnmarshalText(text []byte) error {
	name := string(text)
	if name == "" || len(name) > 128 || strings.Trim(name, upper+lower+digits+"_") != "" || strings.Contains(digits, name[:1]) {
		return fault.New(fault.Invalid, "this is not the name of an environment variable").
			WithHint("write the name of the variable that holds the secret, such as MODEL_API_KEY, and not the secret")
	}
	*v = Variable(name)
	return nil
}

// Path is an absolute and clean path of this host. Whether something is there is not
// judged here.
type Path string

// UnmarshalText refuses other paths. It does not repeat them: one may be the secret.
func (p *Path) UnmarshalText(text []byte) error {
	value := string(text)
	if !path.IsAbs(value) || path.Clean(value) != value || value == "/" || len(value) > 4095 || hasControl(value) {
		return fault.New(fault.Invalid, "this is not an absolute, clean path of a file").
			WithHint("write the path of the file that holds the secret, without . and .. in it, and not the secret")
	}
	*p = Path(value)
	return nil
}

// Command is a program and its arguments. No shell sees it.
type Command []string

// Validate refuses a command without a program, one that depends on where the Stem was
// started, and what no program can be given.
func (c Command) Validate() error {
	const mostWords, mostBytes = 64, 8 << 10
	size := 0
	for _, word := range c {
		size += len(word)
		if strings.ContainsRune(word, 0) {
			return fault.New(fault.Invalid, "the command holds a NUL")
		}
	}
	switch {
	case len(c) == 0 || c[0] == "":
		return fault.New(fault.Invalid, "the command names no program").WithHint("write [PROGRAM, ARGUMENT, ..]")
	case len(c) > mostWords || size > mostBytes:
		return fault.New(fault.Invalid, "the command has more than %d words or %d bytes", mostWords, mostBytes)
	case strings.Contains(c[0], "/") && !path.IsAbs(c[0]):
		return fault.New(fault.Invalid, "the program is named by a relative path").WithHint("write its absolute path, or its name alone to find it in PATH")
	case strings.ContainsAny(c[0], " \t\n"):
		return fault.New(fault.Invalid, "the program's name has a space in it").WithHint("write each word as an item of the list: no shell takes them apart")
	}
	return nil
}

// Age is a file that was encrypted with age for an identity in another file.
type Age struct {
	File     Path `yaml:"file" json:"file"`
	Identity Path `yaml:"identity" json:"identity"`
}

// Validate refuses one without the other.
func (a Age) Validate() error {
	if a.File == "" || a.Identity == "" {
		return fault.New(fault.Invalid, "age needs both a file and an identity").
			WithHint("write {file: PATH of the encrypted secret, identity: PATH of what age-keygen wrote}")
	}
	return nil
}

// RefuseKey says why a secret has no place here.
func (Age) RefuseKey(key string) error { return refuseLiteral(key) }

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f })
}
