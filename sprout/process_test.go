package sprout

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// build makes the program as it is shipped.
func build(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "sprout")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "../cmd/sprout")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, b)
	}
	return out
}

// process is the program at work in dir, with no more environment than a Terrarium has.
func process(t *testing.T, program string, s *scripted, dir string, args ...string) (*exec.Cmd, *strings.Builder, *strings.Builder) {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HTTP_PROXY=http://127.0.0.1:1", "http_proxy=http://127.0.0.1:1"}
	switch s.route {
	case RouteAnthropic:
		cmd.Env = append(cmd.Env, "ANTHROPIC_BASE_URL="+s.URL)
	case RouteOpenAI:
		cmd.Env = append(cmd.Env, "OPENAI_BASE_URL="+s.URL+"/v1")
	}
	return cmd, &stdout, &stderr
}

// flags are those of an ordinary start.
func flags(route string, more ...string) []string {
	return append([]string{"--ask", "make the failing test pass", "--model", "m", "--route", route, "--output", "1000"}, more...)
}

func TestProcess(t *testing.T) {
	program := build(t)
	eachRoute(t, func(t *testing.T, route string) {
		t.Run("turns a failing test green", func(t *testing.T) {
			dir := repository(t)
			script := mending()
			script[2].retryAfter = "1" // which this time is waited for
			cmd, stdout, stderr := process(t, program, serve(t, route, script...), dir, flags(route)...)
			if err := cmd.Run(); err != nil || stderr.Len() > 0 {
				t.Fatalf("%v\n%s%s", err, stdout, stderr)
			}
			if !strings.HasSuffix(stdout.String(), "\nThe test passes: add subtracted. 木\n") {
				t.Errorf("its last words are not there:\n%s", stdout)
			}
			test := exec.Command("sh", "test.sh")
			test.Dir = dir
			if out, err := test.CombinedOutput(); err != nil {
				t.Errorf("the test still fails: %v\n%s", err, out)
			}
		})
		for _, test := range []struct {
			name   string
			script []reply
			args   []string
			status int
			says   string
		}{
			{"done", []reply{shell("true"), words("fine \x1b[2J")}, flags(route), 0, ""},
			{"refused", []reply{{status: 400, kind: "invalid_request_error"}}, flags(route), 1, "answered 400: no: invalid_request_error"},
			{"garbage", []reply{{}}, flags(route), 3, "stuck: 5 answers in a row"},
			{"going round", []reply{shell("echo 1")}, flags(route), 3, "the same results 3 times"},
			{"for ever", []reply{shell("echo x >> log; cat log")}, flags(route, "--turns", "4"), 3, "not done after 4 turns"},
			{"out of budget", []reply{shell("true"), {status: 402, kind: "billing_error", code: "insufficient_quota"}}, flags(route), 4, "spent: the model's server answered 402"},
			{"no ask", nil, []string{"--model", "m", "--route", route}, 2, "must be something to do"},
			{"another route", nil, flags("gemini"), 2, `no route "gemini"`},
			{"an unknown flag", nil, flags(route, "--yolo"), 2, "yolo"},
			{"an argument", nil, flags(route, "now"), 2, `"now" is no flag`},
			{"help", nil, []string{"--help"}, 0, ""},
		} {
			t.Run(test.name, func(t *testing.T) {
				cmd, stdout, stderr := process(t, program, serve(t, route, test.script...), repository(t), test.args...)
				err := cmd.Run()
				if got := cmd.ProcessState.ExitCode(); got != test.status {
					t.Errorf("it ended with %d (%v), want %d\n%s%s", got, err, test.status, stdout, stderr)
				}
				if !strings.Contains(stderr.String(), test.says) || (stderr.Len() > 0) != (test.says != "") || strings.Count(stderr.String(), "\n") > 1 {
					t.Errorf("it says %q, want %q", stderr, test.says)
				}
				if strings.Contains(stdout.String(), "\x1b") {
					t.Error("it steers the terminal")
				}
			})
		}
		t.Run("no base URL", func(t *testing.T) {
			cmd, _, stderr := process(t, program, &scripted{}, t.TempDir(), flags(route)...)
			if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(stderr.String(), "_BASE_URL is not set") {
				t.Errorf("it ended with %v: %s", err, stderr)
			}
		})
		t.Run("SIGTERM", func(t *testing.T) {
			dir := repository(t)
			cmd, _, stderr := process(t, program, serve(t, route, shell("mkfifo wait && cat wait")), dir, flags(route)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			await(t, filepath.Join(dir, "wait"))
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "terminated") {
				t.Errorf("it ended with %v: %s", err, stderr)
			}
			f, err := os.OpenFile(filepath.Join(dir, "wait"), os.O_WRONLY|syscall.O_NONBLOCK, 0)
			if !errors.Is(err, syscall.ENXIO) {
				t.Errorf("its command still runs: %v", err)
				_ = f.Close()
			}
		})
	})
	if runtime.GOOS == "linux" {
		if info, err := os.Stat(program); err != nil || info.Size() > 8_000_000 {
			t.Errorf("the program is %v, %v; want at most 8 MB", info, err)
		}
	}
}
