package executor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// chunks are writes of text that is mostly whole characters, cut anywhere.
func chunks(t *rapid.T, label string) [][]byte {
	text := []byte(rapid.StringOfN(rapid.RuneFrom([]rune("aé€😀\n")), 0, 200, -1).Draw(t, label))
	if rapid.Bool().Draw(t, label+" broken") {
		text = append(text, rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, label+" bytes")...)
	}
	var cut [][]byte
	for len(text) > 0 {
		n := rapid.IntRange(1, len(text)).Draw(t, label+" cut")
		cut, text = append(cut, text[:n]), text[n:]
	}
	return cut
}

func TestStreamKeepsTheTailAndSpillsTheWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spills")
	n := uint64(0)
	rapid.Check(t, func(t *rapid.T) {
		n++
		limit := rapid.IntRange(4, 60).Draw(t, "limit")
		files := &spills{dir: dir, limit: 1 << 20}
		s := &stream{limit: limit, spill: files.spill(n, "stdout")}
		var whole []byte
		for _, chunk := range chunks(t, "text") {
			s.write(chunk)
			whole = append(whole, chunk...)
		}
		s.finish()
		s.write([]byte("too late"))
		r := s.result()
		if r.GetTruncated() != (len(whole) > limit) {
			t.Fatalf("truncated: %v of %d bytes with limit %d", r.GetTruncated(), len(whole), limit)
		}
		want := fromBoundary(whole[max(0, len(whole)-limit):])
		if !r.GetTruncated() {
			want = whole
		}
		if !bytes.Equal(r.GetData(), want) {
			t.Fatalf("got %q, want %q", r.GetData(), want)
		}
		if !r.GetTruncated() {
			if r.GetSpillPath() != "" {
				t.Fatalf("spilled %q to %s", whole, r.GetSpillPath())
			}
			return
		}
		if spilled, err := os.ReadFile(r.GetSpillPath()); err != nil || !bytes.Equal(spilled, whole) {
			t.Fatalf("spilled %q of %q, %v", spilled, whole, err)
		}
	})
}

func TestIncrementsAddUpToTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &stream{limit: 1000}
		var whole, read []byte
		text := chunks(t, "text")
		valid := utf8.Valid(bytes.Join(text, nil))
		for _, chunk := range text {
			s.write(chunk)
			whole = append(whole, chunk...)
			if rapid.Bool().Draw(t, "read") {
				data, dropped := s.next()
				if dropped || valid && !utf8.Valid(data) {
					t.Fatalf("got %q, dropped: %v", data, dropped)
				}
				read = append(read, data...)
			}
		}
		s.finish()
		data, dropped := s.next()
		if read = append(read, data...); dropped || !bytes.Equal(read, whole) {
			t.Fatalf("read %q of %q", read, whole)
		}
		if data, _ := s.next(); len(data) > 0 {
			t.Fatalf("read %q twice", data)
		}
	})
}

func TestIncrementsSayWhatTheyLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(8, 40).Draw(t, "limit")
		s := &stream{limit: limit}
		unread := 0
		for _, chunk := range chunks(t, "text") {
			s.write(chunk)
			unread += len(chunk)
			if rapid.Bool().Draw(t, "read") {
				data, dropped := s.next()
				if dropped != (unread > limit) || len(data) > limit {
					t.Fatalf("dropped: %v of %d bytes with limit %d", dropped, unread, limit)
				}
				unread = int(s.written - s.read)
				if unread > 3 {
					t.Fatalf("%d bytes are held back", unread)
				}
			}
		}
	})
}

func TestFromBoundary(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a": "a", "€a": "€a", "\x82\xaca": "a", "\xaca": "a", "\x80\x80\x80a": "a", "\x80\x80\x80\x80a": "\x80\x80\x80\x80a",
	} {
		if got := string(fromBoundary([]byte(text))); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestIncomplete(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "a": 0, "€": 0, "a\xe2": 1, "a\xe2\x82": 2, "\xf0\x9f\x98": 3, "\xf0\x9f\x98\x80": 0, "\x82\xac": 0, "\xff": 0,
	} {
		if got := incomplete([]byte(text)); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

// Whatever the two streams bring, in messages of whole characters all of it is passed on.
func TestLivePassesEverythingOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLive()
		inputs := [2][][]byte{chunks(t, "stdout"), chunks(t, "stderr")}
		var passed []byte
		take := func() {
			for message := l.next(); len(message) > 0; message = l.next() {
				passed = append(passed, message...)
			}
		}
		want := len(bytes.Join(inputs[0], nil)) + len(bytes.Join(inputs[1], nil))
		valid := utf8.Valid(bytes.Join(inputs[0], nil)) && utf8.Valid(bytes.Join(inputs[1], nil))
		for len(inputs[0])+len(inputs[1]) > 0 {
			stream := rapid.IntRange(0, 1).Draw(t, "stream")
			if len(inputs[stream]) == 0 {
				stream = 1 - stream
			}
			l.write(stream, inputs[stream][0])
			inputs[stream] = inputs[stream][1:]
			if rapid.Bool().Draw(t, "take") {
				take()
				if valid && !utf8.Valid(passed) {
					t.Fatalf("a character is torn: %q", passed)
				}
			}
		}
		l.end()
		take()
		if len(passed) != want || valid && !utf8.Valid(passed) {
			t.Fatalf("passed %d of %d bytes: %q", len(passed), want, passed)
		}
	})
}

func TestLiveIsBoundedWithoutAReader(t *testing.T) {
	l := newLive()
	block := bytes.Repeat([]byte("x"), 100_000)
	for range 1000 {
		l.write(0, block)
	}
	if size := cap(l.pending) + cap(l.tail.buf); size > 2*liveTotal {
		t.Errorf("holds %d bytes", size)
	}
	l.end()
	var all []byte
	for message := l.next(); len(message) > 0; message = l.next() {
		all = append(all, message...)
	}
	want := strings.Repeat("x", liveTotal) + fmt.Sprintf("\n[… %d bytes not shown …]\n", 100_000_000-liveTotal-liveTail) + strings.Repeat("x", liveTail)
	if string(all) != want {
		t.Errorf("got %d bytes, want %d", len(all), len(want))
	}
}
