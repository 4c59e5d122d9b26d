package main

import (
	"context"

	"tendril/api/client"
)

// ask asks the tendril that serves on the socket. A second interrupt leaves without its
// answer: main ends then.
func (c *console) ask(ctx context.Context, socket string, token *string, name string, input any) (any, error) {
	output, _, err := client.Call(ctx, client.Request{Socket: socket, Token: token, Capability: name, Input: input})
	return output, err
}
