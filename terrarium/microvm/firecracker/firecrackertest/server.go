package firecrackertest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Server answers as Firecracker does, and keeps what it was asked for. Set its fields before
// it serves.
type Server struct {
	Spec   *Spec                          // nil: requests are not held to it
	Change func(config map[string]any)    // before the configuration is read back
	Refuse map[string]string              // message by path
	Start  func(config map[string]any)    // the machine starts
	Answer func(http.ResponseWriter) bool // instead of anything else, when it returns true

	mu     sync.Mutex
	asked  []string // method, path and body of each request
	wrong  []error
	config map[string]any
}

// Asked returns the requests in their order, and what the description says against them.
func (s *Server) Asked() (asked []string, wrong []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.wrong
}

const maxRequest = 1 << 20

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Answer != nil && s.Answer(w) {
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, body)))
	s.note(func(spec *Spec) error { return spec.Request(r.Method, r.URL.Path, body) })
	status, answer := s.answer(r.Method, r.URL.Path, body)
	s.note(func(spec *Spec) error { return spec.Response(r.Method, r.URL.Path, status, answer) })
	w.WriteHeader(status)
	_, _ = w.Write(answer) // the client says what became of it
}

func (s *Server) note(check func(*Spec) error) {
	if s.Spec == nil {
		return
	}
	if err := check(s.Spec); err != nil {
		s.wrong = append(s.wrong, err)
	}
}

func (s *Server) answer(method, path string, body []byte) (int, []byte) {
	if message, ok := s.Refuse[path]; ok {
		return http.StatusBadRequest, encode(map[string]any{"fault_message": message})
	}
	if s.config == nil {
		s.config = map[string]any{"drives": []any{}, "network-interfaces": []any{}}
	}
	if method == http.MethodGet && path == "/vm/config" {
		if s.Change != nil {
			s.Change(s.config)
		}
		return http.StatusOK, encode(s.config)
	}
	var value map[string]any
	if method != http.MethodPut || json.Unmarshal(body, &value) != nil {
		return http.StatusBadRequest, encode(map[string]any{"fault_message": "not understood"})
	}
	switch part := strings.TrimPrefix(path, "/"); {
	case part == "actions":
		if s.Start != nil {
			s.Start(s.config)
		}
	case strings.HasPrefix(part, "drives/"):
		s.config["drives"] = append(s.config["drives"].([]any), value)
	default:
		s.config[part] = value
	}
	return http.StatusNoContent, nil
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was decoded before
	}
	return data
}
