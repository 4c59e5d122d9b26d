package tendril_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
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
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
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
	made, handlers := 0, handlerNames(t)
	eachFile(t, "stem", func(path string, file *ast.File, set *token.FileSet) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if name, ok := n.Type.(*ast.Ident); ok && name.Name == "call" {
					made++
					if filepath.Base(path) != "invoke.go" {
						t.Errorf("%s makes a call: only invoke does", set.Position(n.Pos()))
					}
				}
			case *ast.IndexExpr:
				if name, ok := n.X.(*ast.Ident); ok && name.Name == "handlers" && filepath.Base(path) != "invoke.go" {
					t.Errorf("%s looks a handler up: only invoke does", set.Position(n.Pos()))
				}
			case *ast.CallExpr:
				// (*Stem).grow and its like are named in the table, and called by nobody.
				if method, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(handlers, method.Sel.Name) {
					if receiver, ok := method.X.(*ast.Ident); ok && receiver.Name == "s" {
						t.Errorf("%s calls the handler %s", set.Position(n.Pos()), method.Sel.Name)
					}
				}
			}
			return true
		})
	})
	if made != 1 {
		t.Errorf("a call is made in %d places", made)
	}
}

// handlerNames are the methods that the table of handlers names.
func handlerNames(t *testing.T) []string {
	t.Helper()
	var names []string
	eachFile(t, "stem", func(_ string, file *ast.File, _ *token.FileSet) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "handle" && len(call.Args) == 1 {
				names = append(names, call.Args[0].(*ast.SelectorExpr).Sel.Name)
			}
			return true
		})
	})
	if len(names) != len(capability.All()) {
		t.Fatalf("%d handlers for %d capabilities", len(names), len(capability.All()))
	}
	return names
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
