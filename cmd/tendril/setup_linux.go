package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"tendril/display"
	"tendril/fault"
	"tendril/site"
	"tendril/terrarium/microvm/guestimage"
)

// guestDir is where a site keeps the guest of its micro-VMs.
func guestDir(here site.Dirs) string { return filepath.Join(here.State, "microvm") }

func (s *setupMicrovmCommand) Run(ctx context.Context, c *console) error {
	here, err := site.Find(os.Getenv, os.Getuid())
	if err != nil {
		return err
	}
	if here, err = here.Prepare(); err != nil {
		return err
	}
	if s.Remove {
		return s.remove(c, guestDir(here))
	}
	if s.KernelPackage == "" && s.Kernel == "" {
		return fault.New(fault.Invalid, "nothing says from which kernel").
			WithHint("give --kernel-package FILE.deb, or --kernel FILE --modules DIR")
	}
	made, err := guestimage.Build(ctx, guestimage.Source{Package: s.KernelPackage, Kernel: s.Kernel, Modules: s.Modules, Digest: s.Digest}, guestDir(here))
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(made)
		return nil
	}
	fmt.Fprintf(c.stdout, "the guest is Linux %s, made of %s (%s), with %d modules\n",
		display.Line(made.Release), display.Line(made.Source), made.Digest, len(made.Loads))
	return nil
}

func (s *setupMicrovmCommand) remove(c *console, dir string) error {
	removed, err := guestimage.Remove(dir)
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(struct {
			Removed bool `json:"removed"`
		}{removed})
		return nil
	}
	if removed {
		fmt.Fprintln(c.stdout, "the guest is removed")
	} else {
		fmt.Fprintln(c.stdout, "there is no guest")
	}
	return nil
}
