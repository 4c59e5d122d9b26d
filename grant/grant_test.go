package grant

import (
	"testing"
	"time"

	"tendril/capability"
)

const example = `version: 1
grants:
  - pollen: ci-docs
    substrates: [handbook]
    classes: [sprout.grow, run.get, run.logs]
    providers: [runsc, gvisor]
    credentials: [model-api]
    limits: {cpus: 2, memory: 4GiB, pids: 512, disk: 10GiB, wall: 1h, tokens: 2000000, spend: 5.00 USD}
    daily: {runs: 20}
    expires: 2027-06-30
`

func TestThin(t *testing.T) {
	f, err := Parse("grants.yaml", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	d := f.Decide(Request{Pollen: "ci-docs", Class: "sprout.grow", Substrate: "handbook", Now: time.Now()})
	t.Logf("%+v", d)
	d = f.Decide(Request{Pollen: "ci-docs", Class: "run.watch", Substrate: "handbooks", Provider: "host", Limits: capability.Limits{Idle: new(capability.Duration(time.Hour)), CPUs: new(3.0)}, Now: time.Now()})
	t.Logf("%v %+v", d.Refusal(), d)
	t.Log(f.Grants[0].Digest())
}
