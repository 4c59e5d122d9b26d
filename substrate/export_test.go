package substrate

// What the tests of package substrate_test need of the inside.

var (
	ParsePackedRefs  = parsePackedRefs
	ParseRef         = parseRef
	ParseGitFile     = parseGitFile
	ParseTree        = parseTree
	FormatTree       = formatTree
	ParseCommit      = parseCommit
	ParseRawDiff     = parseRawDiff
	ParseConfigList  = parseConfigList
	ParseShallow     = parseShallow
	UnquoteAlternate = unquoteAlternate
	QuoteAlternate   = quoteAlternate
	CheckPath        = checkPath
	CheckRefName     = checkRefName
	WithoutRef       = withoutRef
)

// RefuseName is refuseName for a file or a symbolic link.
func RefuseName(name string, symlink bool) string {
	if symlink {
		return refuseName(name, modeSymlink)
	}
	return refuseName(name, modeFile)
}
