package config

import (
	"maps"
	"slices"
)

// Difference is what has to be done to get from one configuration to another. Rows are told apart by their ids.
type Difference struct {
	Added   []Row
	Changed []Row // as they are to be
	Removed []Row // as they were
}

// Diff compares the effective entries of two configurations. Where an entry stands in a file makes no difference.
func Diff(from, to *Config) Difference {
	var d Difference
	old := map[string]*Row{}
	for i := range from.Rows {
		old[from.Rows[i].ID] = &from.Rows[i]
	}
	for _, row := range to.Rows {
		switch before := old[row.ID]; {
		case before == nil:
			d.Added = append(d.Added, row)
		case !before.equal(&row):
			d.Changed = append(d.Changed, row)
		}
		delete(old, row.ID)
	}
	for _, row := range from.Rows {
		if old[row.ID] != nil {
			d.Removed = append(d.Removed, row)
		}
	}
	return d
}

func (r *Row) equal(other *Row) bool {
	return r.ID == other.ID && r.Plugin == other.Plugin && r.Source == other.Source && slices.Equal(r.Command, other.Command) && maps.Equal(r.Env, other.Env) &&
		r.Disabled == other.Disabled && slices.Equal(r.Watch, other.Watch) && slices.Equal(r.Build, other.Build) && r.Config() == other.Config()
}

// IsEmpty is true when there is nothing to do.
func (d *Difference) IsEmpty() bool { return len(d.Added)+len(d.Changed)+len(d.Removed) == 0 }
