//go:build linux

package stem

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"tendril/egress"
	"tendril/ledger"
	"tendril/pollen"
	"tendril/run"
	"tendril/site"
)

// roadProcess names a directory of a process that is a run's road and nothing else: so that
// what it costs can be told from what its client and its server cost, as with other proxies.
// The directory holds config/grants.yaml and roots.pem, and the state is written into it.
const roadProcess = "TENDRIL_BENCH_ROAD"

func TestMain(m *testing.M) {
	dir := os.Getenv(roadProcess)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := serveRoad(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// ready is what the process says once it serves.
type ready struct {
	Address string `json:"address"`
	Root    []byte `json:"root"` // PEM
}

// serveRoad serves the road of one run over TCP until stdin ends: the proxy, the gate with
// its rows in a database on disk, and the events of the run, as a run has them. What is left
// out is the Terrarium.
func serveRoad(dir string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dirs, err := site.Find(func(name string) string {
		return map[string]string{"HOME": dir, "TENDRIL_CONFIG_DIR": filepath.Join(dir, "config"), "TENDRIL_STATE_DIR": filepath.Join(dir, "state")}[name]
	}, os.Geteuid())
	if err != nil {
		return err
	}
	if dirs, err = dirs.Prepare(); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "roots.pem"))
	if err != nil {
		return err
	}
	block, _ := pem.Decode(text)
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	s, err := Open(ctx, Config{Site: dirs, Dialer: &egress.Dialer{}, Roots: []*x509.Certificate{root}})
	if err != nil {
		return err
	}
	defer s.Close()
	file, err := s.grants()
	if err != nil {
		return err
	}
	id := run.NewID()
	if err := s.state.CreateRun(ctx, run.Run{ID: id, State: run.Queued, Pollen: string(pollen.Botanist)}); err != nil {
		return err
	}
	c := &call{digest: s.state.Digest, name: "sprout.grow", actor: Actor{name: pollen.Botanist, proof: ledger.ByProcess, uid: os.Geteuid()}, permit: permit{reach: &file.Grants[0]}}
	rows, err := s.state.Record(ctx, c.decision(nil))
	if err != nil {
		return err
	}
	c.row = rows[0].Seq
	r, err := s.newReach(c, id, &eventLog{stem: s, id: id, emit: func(run.Event) {}})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			serving.Go(func() { r.proxy.Serve(ctx, conn) })
		}
	})
	if err := json.NewEncoder(os.Stdout).Encode(ready{listener.Addr().String(), r.authority.CertificatePEM()}); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // whose end is that of the benchmark
	listener.Close()
	cancel()
	r.close()
	serving.Wait()
	return nil
}
