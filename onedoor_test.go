package tendril_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tendril/capability"
)

// eachFile parses every Go file of a package that is no test.
func eachFile(t *testing.T, dir string, see func(path string, file *ast.File, set *token.FileSet)) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	set := token.NewFileSet()
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(set, path, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		see(path, file, set)
	}
}

// TestOnlyInvokeCallsHandlers: a handler takes a call, and a call is made in one place, by
// the function that decides. Elsewhere nobody can have one.
func TestOnlyInvokeCallsHandlers(t *testing.T) {
	var files []*ast.File
	var set *token.FileSet
	eachFile(t, "stem", func(_ string, file *ast.File, of *token.FileSet) { files, set = append(files, file), of })
	found, handlers := waysPast(set, files)
	for _, way := range found {
		t.Error(way)
	}
	if handlers != len(capability.All()) {
		t.Errorf("%d handlers for %d capabilities", handlers, len(capability.All()))
	}
}

// TestWaysPastInvokeAreSeen: each of these would be a second door.
func TestWaysPastInvokeAreSeen(t *testing.T) {
	const door = `package stem
import "context"
type Stem struct{}
type call struct{}
type plan struct { stem *Stem; call *call }
type other struct{}
type handler struct { do func(*Stem, *call) }
func (s *Stem) grow(c *call) {}
func (o other) grow() {}
func handle(do func(*Stem, *call)) handler { return handler{do} }
var handlers = map[string]handler{"sprout.grow": handle((*Stem).grow)}
func (s *Stem) invoke(name string) { c := &call{}; handlers[name].do(s, c) }
func (s *Stem) fine(p plan, o other, c *call) { o.grow(); p.call = c }
`
	for name, c := range map[string]struct{ text, says string }{
		"nothing":                     {"", ""},
		"a literal":                   {"func x() { _ = call{} }", "has a call of its own"},
		"the address of one":          {"func x() { _ = &call{} }", "has a call of its own"},
		"new":                         {"func x() { _ = new(call) }", "has a call of its own"},
		"a variable":                  {"func x() { var c call; _ = &c }", "has a call of its own"},
		"a variable of the package":   {"var c call", "has a call of its own"},
		"a list":                      {"func x() { _ = make([]call, 1) }", "has a call of its own"},
		"a literal without its type":  {"var list = []*call{{}}", "has a call of its own"},
		"one within another":          {"type wider struct { call }", "has a call of its own"},
		"another name of the type":    {"type second = call", "has a call of its own"},
		"a second one in invoke":      {"func (o other) invoke() { _ = call{} }", "has a call of its own"},
		"a call by s":                 {"func (s *Stem) x(c *call) { s.grow(c) }", "names the handler grow"},
		"a call by another name":      {"func (stem *Stem) x(c *call) { stem.grow(c) }", "names the handler grow"},
		"a call by a field":           {"func x(p plan) { p.stem.grow(p.call) }", "names the handler grow"},
		"a method as a value":         {"func (s *Stem) x() any { return s.grow }", "names the handler grow"},
		"a method as a function":      {"var f = (*Stem).grow", "names the handler grow"},
		"by an interface":             {"func x(g interface{ grow(*call) }, c *call) { g.grow(c) }", "names the handler grow"},
		"of a type that is not known": {"func x(ctx context.Context, c *call) { ctx.Value(1).(any).grow(c) }", "names the handler grow"},
		"within a wider Stem":         {"type wider struct { *Stem }; func x(w wider, c *call) { w.grow(c) }", "names the handler grow"},
		"the table":                   {`func (s *Stem) x(c *call) { handlers["sprout.grow"].do(s, c) }`, "uses the table of handlers"},
		"the table by another name":   {"var table = handlers", "uses the table of handlers"},
		"all of the table":            {"func x() { for range handlers {} }", "uses the table of handlers"},
	} {
		t.Run(name, func(t *testing.T) {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, "door.go", door+c.text, 0)
			if err != nil {
				t.Fatal(err)
			}
			found, handlers := waysPast(set, []*ast.File{file})
			if handlers != 1 || (len(found) > 0) != (c.says != "") || c.says != "" && !strings.Contains(strings.Join(found, "\n"), c.says) {
				t.Errorf("%d handlers, and found %q; want %q", handlers, found, c.says)
			}
		})
	}
}

// waysPast lists what in package stem could get to a handler but by [Stem.Invoke], and counts
// the handlers of the table. Nothing is imported: who a method belongs to is known where its
// type is one of the package, and elsewhere its name alone is enough to be listed.
func waysPast(set *token.FileSet, files []*ast.File) (found []string, handlers int) {
	info := types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: nothing{}, Error: func(error) {}}
	own, _ := config.Check("stem", set, files, &info) // what it lacks is what was not imported
	callType, table := own.Scope().Lookup("call"), own.Scope().Lookup("handlers")

	names, permitted := map[string]bool{}, map[ast.Node]bool{}
	made := false
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if info.Defs[n.Names[0]] == table {
					handlers += permitHandlers(n, names, permitted)
				}
			case *ast.StarExpr:
				permitted[n.X] = true // a pointer to a call, which somebody else has
			case *ast.FuncDecl:
				if isMethodOf(n, "Stem", "invoke") {
					ast.Inspect(n, func(n ast.Node) bool {
						switch n := n.(type) {
						case *ast.CompositeLit:
							permitted[n], permitted[n.Type] = !made, !made
							made = true
						case *ast.IndexExpr:
							permitted[n.X] = true
						}
						return true
					})
				}
			}
			return true
		})
	}
	add := func(n ast.Node, says string) { found = append(found, set.Position(n.Pos()).String()+" "+says) }
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				switch used := info.Uses[n]; {
				case used == nil || permitted[n]:
				case used == callType:
					add(n, "has a call of its own: only invoke makes one")
				case used == table:
					add(n, "uses the table of handlers: only invoke does")
				}
			case *ast.CompositeLit:
				// In a list of calls the elements need not name their type.
				if of := info.Types[n].Type; n.Type == nil && of != nil && strings.TrimPrefix(of.String(), "*") == "stem.call" {
					add(n, "has a call of its own: only invoke makes one")
				}
			case *ast.SelectorExpr:
				if names[n.Sel.Name] && !permitted[n] && !ofAnother(info.Uses[n.Sel]) {
					add(n, "names the handler "+n.Sel.Name+": only the table does")
				}
			}
			return true
		})
	}
	return found, handlers
}

// permitHandlers notes what the table may name.
func permitHandlers(table ast.Node, names map[string]bool, permitted map[ast.Node]bool) (count int) {
	ast.Inspect(table, func(n ast.Node) bool {
		if method, ok := n.(*ast.SelectorExpr); ok {
			names[method.Sel.Name], permitted[method] = true, true
			count++
		}
		return true
	})
	return count
}

// ofAnother reports whether a method or field is certainly not the Stem's: one of another
// struct of the package.
func ofAnother(used types.Object) bool {
	method, ok := used.(*types.Func)
	if !ok {
		return used != nil // a field
	}
	receiver := method.Signature().Recv().Type()
	return !types.IsInterface(receiver) && strings.TrimPrefix(receiver.String(), "*") != "stem.Stem"
}

func isMethodOf(f *ast.FuncDecl, receiver, name string) bool {
	if f.Recv == nil || f.Name.Name != name {
		return false
	}
	pointer, ok := f.Recv.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	of, ok := pointer.X.(*ast.Ident)
	return ok && of.Name == receiver
}

// nothing imports nothing.
type nothing struct{}

func (nothing) Import(path string) (*types.Package, error) {
	return nil, errors.New(path + " is not looked at")
}

// TestNoRouteIsRegisteredByHand: what serves a socket names no capability, so that none can
// be served, or left out, but by the registry.
func TestNoRouteIsRegisteredByHand(t *testing.T) {
	for _, dir := range []string{"api", "api/wire", "api/client"} {
		eachFile(t, dir, func(_ string, file *ast.File, set *token.FileSet) {
			ast.Inspect(file, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				if text, err := strconv.Unquote(literal.Value); err == nil {
					if _, err := capability.Lookup(text); err == nil {
						t.Errorf("%s names the capability %s", set.Position(n.Pos()), text)
					}
				}
				return true
			})
		})
	}
}
