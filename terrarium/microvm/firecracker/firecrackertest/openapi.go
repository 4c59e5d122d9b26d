// Package firecrackertest holds requests and answers to Firecracker's own description of its
// API, and stands in for Firecracker where there is none.
package firecrackertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// variable names the file; without it the file is looked for beside the checkout.
const variable = "TENDRIL_FIRECRACKER_API"

// Spec is the description of the API.
type Spec struct {
	Paths       map[string]map[string]operation `yaml:"paths"`
	Definitions map[string]schema               `yaml:"definitions"`
}

type operation struct {
	Parameters []struct {
		In       string `yaml:"in"`
		Required bool   `yaml:"required"`
		Schema   schema `yaml:"schema"`
	} `yaml:"parameters"`
	Responses map[string]struct {
		Schema schema `yaml:"schema"`
	} `yaml:"responses"`
}

type schema struct {
	Ref        string            `yaml:"$ref"`
	Type       string            `yaml:"type"`
	Required   []string          `yaml:"required"`
	Properties map[string]schema `yaml:"properties"`
	Items      *schema           `yaml:"items"`
	Enum       []string          `yaml:"enum"`
	Minimum    *float64          `yaml:"minimum"`
	Maximum    *float64          `yaml:"maximum"`
}

// Load reads the description, and skips the test where there is none.
func Load(t testing.TB) *Spec {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		path = beside(t)
	}
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		t.Skipf("firecracker's description of its API is missing: name the file (src/firecracker/swagger/firecracker.yaml of its sources) with %s", variable)
	}
	if err != nil {
		t.Fatal(err)
	}
	var s Spec
	if err := yaml.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Paths) == 0 || len(s.Definitions) == 0 {
		t.Fatalf("%s describes no API", path)
	}
	return &s
}

func beside(t testing.TB) string {
	t.Helper()
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil || at == filepath.Dir(at) {
			return filepath.Join(filepath.Dir(at), "shared", "firecracker", "openapi.yaml")
		}
		at = filepath.Dir(at)
	}
}

// Request returns nil when the description permits a request.
func (s *Spec) Request(method, path string, body []byte) error {
	op, err := s.find(method, path)
	if err != nil {
		return err
	}
	for _, p := range op.Parameters {
		if p.In == "body" {
			return s.text(body, p.Schema)
		}
	}
	if len(body) > 0 {
		return fmt.Errorf("%s %s takes no body", method, path)
	}
	return nil
}

// Response returns nil when the description permits an answer.
func (s *Spec) Response(method, path string, status int, body []byte) error {
	op, err := s.find(method, path)
	if err != nil {
		return err
	}
	r, ok := op.Responses[fmt.Sprint(status)]
	if !ok {
		r, ok = op.Responses["default"]
	}
	switch {
	case !ok:
		return fmt.Errorf("%s %s is not answered with %d", method, path, status)
	case r.Schema.Ref == "" && r.Schema.Type == "":
		if len(body) > 0 {
			return fmt.Errorf("%s %s is answered with nothing", method, path)
		}
		return nil
	}
	return s.text(body, r.Schema)
}

func (s *Spec) find(method, path string) (operation, error) {
	for pattern, operations := range s.Paths {
		if op, ok := operations[strings.ToLower(method)]; ok && matches(pattern, path) {
			return op, nil
		}
	}
	return operation{}, fmt.Errorf("the API has no %s %s", method, path)
}

func matches(pattern, path string) bool {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i, w := range want {
		if w != got[i] && (!strings.HasPrefix(w, "{") || got[i] == "") {
			return false
		}
	}
	return true
}

func (s *Spec) text(body []byte, of schema) error {
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return fmt.Errorf("%q is no JSON: %w", body, err)
	}
	return s.value("", v, of)
}

// value checks what this API's description uses of JSON Schema. Unlike it, a property that
// is not described is refused: Firecracker does too.
func (s *Spec) value(at string, v any, of schema) error {
	if of.Ref != "" {
		name := strings.TrimPrefix(of.Ref, "#/definitions/")
		referred, ok := s.Definitions[name]
		if !ok {
			return fmt.Errorf("%s: there is no definition %s", at, name)
		}
		return s.value(at, v, referred)
	}
	switch of.Type {
	case "object", "":
		return s.object(at, v, of)
	case "array":
		list, ok := v.([]any)
		if !ok || of.Items == nil {
			return fmt.Errorf("%s: %v is no array", at, v)
		}
		for i, element := range list {
			if err := s.value(fmt.Sprintf("%s[%d]", at, i), element, *of.Items); err != nil {
				return err
			}
		}
	case "string":
		text, ok := v.(string)
		if !ok || len(of.Enum) > 0 && !slices.Contains(of.Enum, text) {
			return fmt.Errorf("%s: %v is not one of its strings", at, v)
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			return fmt.Errorf("%s: %v is no boolean", at, v)
		}
	case "integer":
		n, ok := v.(float64)
		if !ok || n != float64(int64(n)) || of.Minimum != nil && n < *of.Minimum || of.Maximum != nil && n > *of.Maximum {
			return fmt.Errorf("%s: %v is no number that is permitted", at, v)
		}
	default:
		return fmt.Errorf("%s: the type %q is not known here", at, of.Type)
	}
	return nil
}

func (s *Spec) object(at string, v any, of schema) error {
	object, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: %v is no object", at, v)
	}
	for _, name := range of.Required {
		if _, ok := object[name]; !ok {
			return fmt.Errorf("%s: %s is missing", at, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		property, ok := of.Properties[name]
		if !ok {
			return fmt.Errorf("%s: %s is not described", at, name)
		}
		if err := s.value(at+"."+name, object[name], property); err != nil {
			return err
		}
	}
	return nil
}
