package agent

// LoadLog loads a session as the plugin does, and closes its log again. It returns the number of the last event.
func LoadLog(dir, id string) (uint64, error) {
	s, err := (&agent{store: store{dir, &index{}}}).load(id)
	if err != nil {
		return 0, err
	}
	return s.log.seq, s.log.close()
}
