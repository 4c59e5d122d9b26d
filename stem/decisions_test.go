//go:build linux

package stem

import (
	"errors"
	"slices"
	"testing"
	"time"

	"tendril/capability"
	"tendril/fault"
	"tendril/run"
	"tendril/terrarium"
)

func TestIdleIsNeitherOutputNorWork(t *testing.T) {
	const limit = time.Minute
	for name, c := range map[string]struct {
		limit, since, quiet, cpu time.Duration
		reached, starts          bool
	}{
		"no limit":                {0, time.Hour, time.Hour, 0, false, false},
		"not long enough":         {limit, limit / 2, limit, 0, false, false},
		"long enough":             {limit, 2 * limit, 3 * limit, 0, true, false},
		"output meanwhile":        {limit, 2 * limit, limit / 2, 0, false, true},
		"a busy processor":        {limit, 2 * limit, 3 * limit, limit, false, true},
		"the kernel's own upkeep": {limit, 2 * limit, 3 * limit, time.Second, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			since := time.Now().Add(-c.since)
			w := idleWatch{limit: c.limit, since: since}
			if got := w.reached(c.quiet, c.cpu); got != c.reached {
				t.Errorf("reached: %v", got)
			}
			if started := !w.since.Equal(since); started != c.starts {
				t.Errorf("counting began anew: %v", started)
			}
		})
	}
}

func TestEndState(t *testing.T) {
	commit := "0123"
	invalid, missing := fault.New(fault.Invalid, "x"), fault.New(fault.NotFound, "x")
	broken, unavailable := fault.New(fault.BrokenBoundary, "x"), fault.New(fault.Unavailable, "x")
	stop := &run.Stop{Limit: run.Wall}
	for name, c := range map[string]struct {
		state     run.State
		commit    *string
		stop      *run.Stop
		broke     error
		completed run.State
		want      run.State
	}{
		"changes":                        {run.Collecting, &commit, nil, nil, run.Fruited, run.Fruited},
		"no changes":                     {run.Collecting, nil, nil, nil, run.Unchanged, run.Unchanged},
		"stopped, with changes":          {run.Collecting, &commit, stop, nil, run.Fruited, run.Stopped},
		"stopped, nothing collected":     {run.Running, nil, stop, broken, "", run.Stopped},
		"the request was at fault":       {run.Preparing, nil, nil, invalid, "", run.Refused},
		"this host cannot":               {run.Preparing, nil, nil, unavailable, "", run.Refused},
		"the wall broke while made":      {run.Preparing, nil, nil, broken, "", run.Withered},
		"a defect":                       {run.Preparing, nil, nil, errors.New("x"), "", run.Withered},
		"no Fruit was asked for":         {run.Running, nil, nil, nil, run.Passed, run.Passed},
		"no such command inside":         {run.Running, nil, nil, missing, "", run.Refused},
		"the wall broke":                 {run.Running, nil, nil, broken, "", run.Withered},
		"the work could not be recorded": {run.Running, nil, nil, unavailable, "", run.Withered},
		"Git refused the result":         {run.Collecting, nil, nil, invalid, "", run.Withered},
		"closing failed after the Fruit": {run.Collecting, &commit, nil, errors.New("x"), "", run.Withered},
	} {
		t.Run(name, func(t *testing.T) {
			r := run.Run{State: c.state, Commit: c.commit, Stop: c.stop}
			got := endState(r, c.broke, c.completed)
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if err := run.Transition(c.state, got); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLimitsComeFromTheRequestThenTheBotanist(t *testing.T) {
	asked := capability.Limits{CPUs: new(1.5), Memory: new(capability.Bytes(1 << 30)), Pids: new(7), Idle: new(capability.Duration(time.Minute))}
	defaults := capability.Limits{Memory: new(capability.Bytes(1 << 20)), Disk: new(capability.Bytes(2 << 30)), Wall: new(capability.Duration(time.Second))}
	got := specLimits(asked, defaults)
	want := terrarium.Spec{
		CPUs:   terrarium.Limit[float64]{Value: 1.5, Required: true},
		Memory: terrarium.Limit[int64]{Value: 1 << 30, Required: true},
		Disk:   terrarium.Limit[int64]{Value: 2 << 30},
		Output: terrarium.Limit[int64]{Value: defaultOutput},
		Pids:   terrarium.Limit[int]{Value: 7, Required: true},
		Wall:   terrarium.Limit[time.Duration]{Value: time.Second},
		Idle:   terrarium.Limit[time.Duration]{Value: time.Minute, Required: true},
	}
	if got.CPUs != want.CPUs || got.Memory != want.Memory || got.Disk != want.Disk || got.Output != want.Output ||
		got.Pids != want.Pids || got.Wall != want.Wall || got.Idle != want.Idle {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if none := specLimits(capability.Limits{}, capability.Limits{}); none.Wall.Value != defaultWall || none.Wall.Required || none.Memory != (terrarium.Limit[int64]{}) {
		t.Errorf("with neither: %+v", none)
	}
}

func TestEnvironmentIsWrittenOut(t *testing.T) {
	t.Setenv("TENDRIL_CANARY", "of the caller")
	env := environment([]string{"PATH=/usr/bin", "GOPATH=/go", "HOME=/root"}, []string{"HOME=/elsewhere", "NEW=a=b", "NEW=c"})
	for _, want := range []string{"PATH=/usr/bin", "HOME=/elsewhere", "NEW=c", "USER=sprout"} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is missing in %q", want, env)
		}
	}
	names := map[string]int{}
	for _, variable := range env {
		name := variable[:slices.Index([]byte(variable), '=')]
		names[name]++
	}
	if names["HOME"] != 1 || names["NEW"] != 1 || names["TENDRIL_CANARY"] != 0 {
		t.Errorf("%q", env)
	}
}

func TestUnenforcedLimitsAreNamed(t *testing.T) {
	rows := []terrarium.Row{
		{Field: "Memory", Asked: "1", Enforced: terrarium.Sampled, Note: "n"},
		{Field: "CPUs", Asked: "2", Enforced: terrarium.NotKept, Note: "n"},
		{Field: "Pids", Asked: "3", Enforced: terrarium.ByHost},
		{Field: "Idle", Asked: "0s", Enforced: terrarium.NotKept},
		{Field: "User", Asked: "x", Enforced: terrarium.NotKept},
	}
	if got := unenforcedLimits(rows); !slices.Equal(got, []run.Limit{run.CPU, run.Memory}) {
		t.Errorf("%q", got)
	}
	if got := unenforcedLimits(nil); got == nil {
		t.Error("null instead of an empty list")
	}
}
