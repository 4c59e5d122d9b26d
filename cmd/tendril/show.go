package main

import (
	"fmt"
	"text/tabwriter"
)

// show prints what a call answered, as JSON or by text, unless it failed.
func show[T any](c *console, output any, err error, text func(T) error) error {
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(output)
		return nil
	}
	return text(output.(T))
}

// list is show for a list: a table below header, with a row for each entry. The cells of
// both are separated by tabs, and whoever makes a row escapes what is in it.
func list[T any](c *console, output any, err error, header string, row func(T) string) error {
	return show(c, output, err, func(entries []T) error {
		table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, header)
		for _, entry := range entries {
			fmt.Fprintln(table, row(entry))
		}
		return table.Flush()
	})
}
