package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"tendril/fault"
	"tendril/spelling"
)

// Names holds inputs as people write them: the name of an input, and the name of
// its value.
type Names map[string]string

// InputNames returns the names of the seven inputs, in their order.
func InputNames() []string {
	var names []string
	for _, input := range inputs {
		names = append(names, input.name)
	}
	return names
}

// Evaluate decides what the names say. A value that is missing or not known is out
// of range, and the reason says which one and what was probably meant. A name that
// is no input puts everything out of range: what it was meant to say is not known.
func (n Names) Evaluate() Decision {
	in, details := n.input()
	return decide(violations(in), details)
}

func (n Names) input() (Input, []string) {
	var in Input
	var details []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		if !slices.Contains(InputNames(), name) {
			details = append(details, unknownInput(name))
		}
	}
	if details != nil {
		return Input{}, details
	}
	for _, input := range inputs {
		name, given := n[input.name]
		position := slices.Index(input.values, name)
		switch {
		case position >= 0:
			input.set(&in, uint8(position+1))
		case !given:
			details = append(details, fmt.Sprintf("%s is missing (one of %s)", input.name, strings.Join(input.values, ", ")))
		default:
			details = append(details, fmt.Sprintf("%s has no value %q (%s)", input.name, clip(name), suggestion(name, input.values)))
		}
	}
	return in, details
}

func unknownInput(name string) string {
	return fmt.Sprintf("there is no input %q (%s)", clip(name), suggestion(name, InputNames()))
}

func suggestion(word string, known []string) string {
	if nearest, ok := spelling.Nearest(word, known); ok {
		return fmt.Sprintf("did you mean %q?", nearest)
	}
	return "one of " + strings.Join(known, ", ")
}

// clip bounds what a reason repeats.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// LargestJSON is the most bytes that an input in JSON may have.
const LargestJSON = 4 << 10

// DecodeJSON reads Names from one JSON object of texts. It refuses, as a fault of
// the kind invalid, what would be read in two ways or not at all: a key that is no
// input (also one that differs in case alone), a key that comes twice, a value that
// is not text, anything after the object, and more than LargestJSON bytes. Missing
// keys and unknown values are for Evaluate, which denies them.
func DecodeJSON(data []byte) (Names, error) {
	if len(data) > LargestJSON {
		return nil, fault.New(fault.Invalid, "the input is larger than %d bytes", LargestJSON)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if token, err := decoder.Token(); err != nil {
		return nil, notJSON(err)
	} else if token != json.Delim('{') {
		return nil, fault.New(fault.Invalid, "the input is not a JSON object").WithHint(`write {"runtime":"container",…}`)
	}
	names := Names{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, notJSON(err)
		}
		key := token.(string) // the decoder takes nothing else for a key
		if !slices.Contains(InputNames(), key) {
			return nil, fault.New(fault.Invalid, "%s", unknownInput(key))
		}
		if _, ok := names[key]; ok {
			return nil, fault.New(fault.Invalid, "the input %q comes twice", key)
		}
		if token, err = decoder.Token(); err != nil {
			return nil, notJSON(err)
		}
		value, ok := token.(string)
		if !ok {
			return nil, fault.New(fault.Invalid, "the value of %q is not text", key).WithHint("put it in quotes")
		}
		names[key] = value
	}
	if _, err := decoder.Token(); err != nil { // the closing brace
		return nil, notJSON(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Invalid, "something follows the JSON object").WithHint("write one object and nothing else")
	}
	return names, nil
}

func notJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.New(fault.Invalid, "the input is not JSON: it ends too early")
	}
	return fault.New(fault.Invalid, "the input is not JSON: %w", err)
}
