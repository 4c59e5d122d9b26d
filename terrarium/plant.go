package terrarium

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tendril/erofs"
	"tendril/stoma"
)

// Plant brings the tree of a base image into the workspace of a Terrarium that cannot
// mount it, and was made without.
func Plant(ctx context.Context, inside *stoma.Client, image string) error {
	r, w := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.CloseWithError(erofs.WriteFileTar(w, image))
	}()
	err := inside.Plant(ctx, r)
	r.CloseWithError(errors.New("the Stoma takes no more"))
	<-written
	if err != nil {
		return fmt.Errorf("bringing in the base: %w", err)
	}
	return nil
}
