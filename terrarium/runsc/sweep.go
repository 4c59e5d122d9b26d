//go:build linux

package runsc

import (
	"context"
	"errors"
	"path/filepath"

	"tendril/terrarium/confine"
)

// keeperFile names the keeper of a Terrarium for whoever comes after a Stem that was
// killed.
const keeperFile = "keeper"

// Sweep implements [terrarium.Provider]. The keeper ends by itself when its Stem
// is gone, and takes the sandbox along; this is for what was killed before it
// could. A keeper that is not named never got its order.
func (p *provider) Sweep(ctx context.Context, run, dir string) error {
	return errors.Join(confine.Sweep(ctx, run, filepath.Join(dir, keeperFile)), removeRemains(dir))
}
