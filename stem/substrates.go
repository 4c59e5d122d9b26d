//go:build linux

package stem

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"

	"tendril/capability"
	"tendril/fault"
	"tendril/grant"
	"tendril/run"
	"tendril/substrate"
)

// substrates is the Substrates file in force.
func (s *Stem) substrates() (grant.SubstratesFile, error) {
	file, err := s.substratesFile.Current()
	return file, s.tolerate(grant.SubstratesFileName, err, file.Version)
}

// tolerate says loudly, once for each fault, that a new version of a control plane file is
// broken and that the one before stays in force. Without one before, which has version 0,
// nothing holds.
func (s *Stem) tolerate(file string, err error, version int) error {
	if err != nil && version == 0 {
		return err
	}
	said := ""
	if err != nil {
		said = err.Error()
	}
	s.complaining.Lock()
	defer s.complaining.Unlock()
	if said != "" && s.complaints[file] != said {
		s.config.Notice(said + "; the version before stays in force until this is mended")
	}
	s.complaints[file] = said
	return nil
}

// edit edits a file of the control plane, and records what of target changed, with the
// digest of the file after. A file is no part of the database's transaction: the row
// follows the file, and if it cannot be written the call fails with the edit in force.
func (s *Stem) edit(ctx context.Context, c *call, file, what, target string, change func(path string, old []byte) ([]byte, error)) (string, error) {
	row, changed := c.change(what, target), false
	path, err := s.config.Site.Edit(file, func(path string, old []byte) ([]byte, error) {
		text, err := change(path, old)
		sum := sha256.Sum256(text)
		row.Digests = map[string]string{"file": "sha256:" + hex.EncodeToString(sum[:])}
		changed = !bytes.Equal(text, old)
		return text, err
	})
	if err != nil || !changed {
		return path, err
	}
	// The edit is made, also for a caller who is gone by now.
	_, err = s.state.Record(context.WithoutCancel(ctx), row)
	return path, err
}

// open opens the repository that a Substrate is bound to. What a name is bound to is
// the control plane's to say, and no request's.
func (s *Stem) open(ctx context.Context, about run.Substrate) (*substrate.Repository, error) {
	if about.Name == "" {
		return s.store.Open(ctx, string(about.Path))
	}
	bound, err := s.bound(about.Name)
	if err != nil {
		return nil, err
	}
	if bound.URL != "" {
		return s.store.OpenCopy(ctx, string(bound.URL))
	}
	return s.store.Open(ctx, string(bound.Path))
}

func (s *Stem) bound(name string) (grant.Substrate, error) {
	file, err := s.substrates()
	if err != nil {
		return grant.Substrate{}, err
	}
	return file.Lookup(name)
}

// refresh brings the copy of a Substrate that is bound to a URL up to date.
func (s *Stem) refresh(ctx context.Context, about run.Substrate) error {
	if about.Name == "" {
		return nil
	}
	bound, err := s.bound(about.Name)
	if err != nil || bound.URL == "" {
		return err
	}
	capability.Progress(ctx, "fetching "+about.Name, 0, 0)
	return s.store.Fetch(ctx, string(bound.URL))
}

func (s *Stem) listSubstrates(_ context.Context, c *call, _ capability.EmptyInput) ([]capability.Substrate, error) {
	file, err := s.substrates()
	list := []capability.Substrate{}
	for _, name := range file.Names() {
		seen := substrateOf(name, file.Substrates[grant.SubstrateName(name)])
		if !c.actor.Botanist() {
			if c.permit.scope[name] == "" {
				continue
			}
			seen.Path, seen.URL = nil, nil // where it lies is not for whoever may only use it
		}
		list = append(list, seen)
	}
	return list, err
}

func (s *Stem) addSubstrate(ctx context.Context, c *call, in capability.SubstrateAddInput) (capability.Substrate, error) {
	added := grant.Substrate{URL: grant.URL(in.URL), Branch: grant.Branch(in.Branch), Provider: grant.Provider(in.Provider)}
	if in.Path != nil {
		// The repository itself and no way to it: a directory below it would name all of it,
		// and whoever can move a link could move the Substrate.
		repository, err := s.store.Open(ctx, string(*in.Path))
		if err != nil {
			return capability.Substrate{}, err
		}
		added.Path = grant.Path(repository.Worktree)
		if repository.Bare {
			added.Path = grant.Path(repository.GitDir)
		}
		if err := repository.Close(); err != nil {
			return capability.Substrate{}, err
		}
	}
	_, err := s.edit(ctx, c, grant.SubstratesFileName, "substrate.bound", in.Name, func(path string, text []byte) ([]byte, error) {
		return grant.AddSubstrate(path, text, grant.SubstrateName(in.Name), added)
	})
	return substrateOf(in.Name, added), err
}

func (s *Stem) removeSubstrate(ctx context.Context, c *call, in capability.SubstrateInput) (capability.Substrate, error) {
	var removed grant.Substrate
	_, err := s.edit(ctx, c, grant.SubstratesFileName, "substrate.removed", in.Name, func(path string, text []byte) ([]byte, error) {
		var file grant.SubstratesFile
		if text != nil {
			parsed, err := grant.ParseSubstrates(path, text)
			if err != nil {
				return nil, err
			}
			file = parsed
		}
		if _, err := file.Lookup(in.Name); err != nil {
			return nil, err
		}
		removed = file.Substrates[grant.SubstrateName(in.Name)]
		return grant.RemoveSubstrate(path, text, in.Name)
	})
	if fault.Is(err, fault.Unavailable) {
		return capability.Substrate{}, err
	}
	return substrateOf(in.Name, removed), err
}

func substrateOf(name string, bound grant.Substrate) capability.Substrate {
	out := capability.Substrate{Name: name}
	if bound.Path != "" {
		out.Path = new(run.Path(bound.Path))
	}
	for to, from := range map[**string]string{&out.URL: string(bound.URL), &out.Branch: string(bound.Branch), &out.Provider: string(bound.Provider)} {
		if from != "" {
			*to = &from
		}
	}
	return out
}
