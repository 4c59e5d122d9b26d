package grant

import (
	"testing"
)

func TestThinEdit(t *testing.T) {
	f, err := Parse("grants.yaml", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	out, err := Add(FileName, nil, f.Grants[0])
	t.Logf("%s %v", out, err)
	out, err = Add(FileName, []byte(example), f.Grants[0])
	t.Logf("%s %v", out, err)
	out, n, err := Revoke(FileName, out, "ci-docs", "run.get", "")
	t.Logf("%s %v %v", out, n, err)
	out, n, err = Revoke(FileName, out, "ci-docs", "", "handbook")
	t.Logf("%s %v %v", out, n, err)
}
