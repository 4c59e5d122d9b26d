package main

import (
	"context"
	"reflect"

	"tendril/capability"
	"tendril/run"
)

// callCommand asks for any capability by its name, with the input that the wire
// takes: for programs, which would otherwise have to spell flags.
type callCommand struct {
	Name  string `arg:"" help:"The capability, such as run.get."`
	Input string `arg:"" optional:"" default:"-" help:"A file with the input as JSON; - is stdin."`
}

func (k *callCommand) Run(ctx context.Context, c *console) error {
	definition, err := capability.Lookup(k.Name)
	if err != nil {
		return err
	}
	data, err := readFile(ctx, k.Input, c.stdin, capability.LargestInput)
	if err != nil {
		return err
	}
	input := reflect.New(definition.Input)
	if err := capability.Decode(data, input.Interface()); err != nil {
		return err
	}
	output, err := c.invoke(capability.WithEvents(ctx, func(e run.Event) { c.printJSON(e) }), k.Name, input.Elem().Interface())
	if err != nil {
		return err
	}
	c.printJSON(output)
	return nil
}
