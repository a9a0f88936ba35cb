package executor

import (
	"sync"
	"sync/atomic"
)

// scans shares looks at the process table: those who ask while one is being taken get the next one together.
type scans struct {
	asked atomic.Uint64

	mu       sync.Mutex
	answered uint64 // the last question that was asked before the latest scan began
	latest   []proc
}

// fresh returns the live processes as of after the call. The result is shared: do not change it.
func (s *scans) fresh() []proc {
	question := s.asked.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answered < question {
		s.answered = s.asked.Load()
		s.latest = scanProcesses()
	}
	return s.latest
}
