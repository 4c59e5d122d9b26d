package terrarium

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"tendril/erofs"
	"tendril/stoma"
)

// Plant brings the tree of a base image into the workspace of a Terrarium that cannot
// mount it, and was made without.
func Plant(ctx context.Context, inside *stoma.Client, image string) error {
	f, err := os.Open(image)
	if err != nil {
		return fmt.Errorf("bringing in the base: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("bringing in the base: %w", err)
	}
	tree, err := erofs.Open(f, info.Size())
	if err != nil {
		return fmt.Errorf("bringing in the base %s: %w", image, err)
	}
	r, w := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.CloseWithError(erofs.WriteTar(w, tree))
	}()
	err = inside.Plant(ctx, r)
	r.CloseWithError(errors.New("the Stoma takes no more"))
	<-written
	if err != nil {
		return fmt.Errorf("bringing in the base: %w", err)
	}
	return nil
}
