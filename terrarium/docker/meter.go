//go:build linux

package docker

import (
	"context"
	"time"

	"tendril/cgroup"
)

// meter is what a container uses and what its limits did: its control group's files, or
// what the daemon says where they cannot be seen from here.
type meter interface {
	Usage() (cgroup.Usage, error)
	Events() (cgroup.Events, error)
	Processes() ([]int, error) // nil: nobody says which
}

// answers is the daemon as a meter. It does not say how often a limit refused something.
type answers struct {
	daemon *daemon
	id     string
}

// answerTime bounds a question: the daemon may be gone.
const answerTime = 5 * time.Second

func (a answers) Usage() (cgroup.Usage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	s, err := a.daemon.stats(ctx, a.id)
	if err != nil {
		return cgroup.Usage{}, err
	}
	dropped := s.MemoryStats.Stats["inactive_file"] + s.MemoryStats.Stats["active_file"] // of version 2
	dropped = max(dropped, s.MemoryStats.Stats["total_inactive_file"]+s.MemoryStats.Stats["total_active_file"])
	return cgroup.Usage{
		Memory: max(int64(s.MemoryStats.Usage)-int64(dropped), 0),
		CPU:    time.Duration(s.CPUStats.CPUUsage.TotalUsage), // nanoseconds
		Pids:   int(s.PidsStats.Current),
	}, nil
}

func (a answers) Events() (cgroup.Events, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	got, err := a.daemon.inspect(ctx, a.id)
	if err != nil || got.State == nil || !got.State.OOMKilled {
		return cgroup.Events{}, err
	}
	return cgroup.Events{OOMKills: 1}, nil
}

func (answers) Processes() ([]int, error) { return nil, nil }
