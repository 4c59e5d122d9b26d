package terrarium

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// FieldRow is the row of a field that is no limit, as it stands when the boundary was made
// as spec asks: whoever reads back how it became says so in the row. It panics for a field
// that Spec has not.
func FieldRow(spec Spec, field, note string) Row {
	dimension, asked := describe(spec, field)
	return Row{Dimension: dimension, Field: field, Asked: asked, Applied: asked, How: Constructed, Enforced: ByHost, Note: note}
}

// ReadBack is the row with how it was learnt.
func (r Row) ReadBack(how How) Row {
	r.How = how
	return r
}

// describe is a field's dimension and what spec asks for it, in words that two
// boundaries can be compared by.
func describe(spec Spec, field string) (dimension, asked string) {
	switch field {
	case "Run":
		return DimensionProcess, spec.Run
	case "Rootfs.Host.Dirs":
		return DimensionFilesystem, describeHost(spec.Rootfs.Host)
	case "Rootfs.Image.Path":
		if image := spec.Rootfs.Image; image != nil {
			return DimensionFilesystem, filepath.Base(image.Path)
		}
		return DimensionFilesystem, "none"
	case "Rootfs.Image.Digest":
		if image := spec.Rootfs.Image; image != nil {
			return DimensionFilesystem, image.Digest
		}
		return DimensionFilesystem, "none"
	case "Rootfs.Authority":
		if spec.Rootfs.Authority == nil {
			return DimensionFilesystem, "its own"
		}
		return DimensionFilesystem, fmt.Sprintf("sha256:%x", sha256.Sum256(spec.Rootfs.Authority))
	case "Rootfs.Programs":
		var targets []string
		for _, p := range spec.Rootfs.Programs {
			targets = append(targets, p.Target)
		}
		return DimensionFilesystem, strings.Join(targets, " ")
	case "Workspace.Image":
		return DimensionFilesystem, filepath.Base(spec.Workspace.Image)
	case "Workspace.Dir":
		return DimensionFilesystem, filepath.Base(spec.Workspace.Dir)
	case "WritableRoot":
		return DimensionFilesystem, fmt.Sprint(spec.WritableRoot)
	case "Network":
		return DimensionNetwork, spec.Network.String()
	case "Listeners":
		return DimensionNetwork, spec.DescribeListeners()
	case "Env":
		return DimensionProcess, strings.Join(names(spec.Env), " ")
	case "User":
		user := spec.User
		if user == (User{}) {
			user = DefaultUser
		}
		return DimensionProcess, user.String()
	}
	panic("no row is made for the field " + field)
}

func describeHost(view *HostView) string {
	switch {
	case view == nil:
		return "none"
	case len(view.Dirs) == 0:
		return "host view"
	default:
		return "host view with " + strings.Join(view.Dirs, " ")
	}
}

// String is UID:GID.
func (u User) String() string { return fmt.Sprintf("%d:%d", u.UID, u.GID) }

// names drops the values: an environment may hold what a record should not.
func names(env []string) []string {
	list := make([]string, len(env))
	for i, variable := range env {
		list[i], _, _ = strings.Cut(variable, "=")
	}
	return list
}

// Defaulted is a limit with the provider's default where nobody asked for another, as its
// row has to say.
func Defaulted[T float64 | int64 | int | time.Duration](asked Limit[T], byDefault T) Limit[T] {
	if asked.Value == 0 {
		asked.Value = byDefault
	}
	return asked
}

// LimitRow is the row of a limit: asked and applied as given, and whether
// somebody asked for it.
func LimitRow[T float64 | int64 | int | time.Duration](field string, asked Limit[T], applied T, how How, by Enforcement, note string) Row {
	row := Row{Dimension: DimensionResources, Field: field, Required: asked.Required, How: how, Enforced: by, Note: note}
	row.Asked, row.Applied = fmt.Sprint(asked.Value), fmt.Sprint(applied)
	return row
}
