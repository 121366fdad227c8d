package process

import (
	"strings"
	"testing"
	"testing/synctest"
)

func TestLiveJoinsWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []Chunk
		l := newLive(func(c Chunk) { got = append(got, c) })
		l.offer(Stdout, []byte("first"))
		synctest.Wait()
		equal(t, "delivered at once", len(got), 1)
		l.offer(Stdout, []byte("a"))
		l.offer(Stdout, []byte("b"))
		l.offer(Stderr, []byte("c"))
		synctest.Wait()
		equal(t, "delivered during the pause", len(got), 1)
		l.close()
		equal(t, "chunks", len(got), 3)
		equal(t, "joined", got[1], Chunk{Stream: Stdout, Text: "ab"})
		equal(t, "other stream", got[2], Chunk{Stream: Stderr, Text: "c"})
	})
}

func TestLiveDropsForASlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []Chunk
		blocked, full := make(chan struct{}), make(chan struct{}, 9)
		l := newLive(func(c Chunk) { got = append(got, c); full <- struct{}{}; <-blocked })
		big := []byte(strings.Repeat("x", livePending))
		l.offer(Stdout, []byte("1"))
		<-full // the reader has the first chunk and is stuck in it
		l.offer(Stdout, big)
		l.offer(Stdout, []byte("dropped"))
		l.offer(Stderr, []byte("lost"))
		close(blocked)
		<-full // and now the second
		l.offer(Stdout, []byte("2"))
		l.close()
		equal(t, "chunks", len(got), 4)
		equal(t, "full", got[1].Text, string(big))
		equal(t, "after the gap", got[2], Chunk{Stream: Stdout, Text: "2", Dropped: 7})
		equal(t, "gap at the end", got[3], Chunk{Stream: Stderr, Dropped: 4})
	})
}
