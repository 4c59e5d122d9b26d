package model

import "context"

// mostRoom bounds the bytes of all requests of a route that are held at once. What is
// made of a request takes about as much again.
const mostRoom = 2 * MostBody

// room hands out memory in pieces of a megabyte.
type room struct {
	turn   chan struct{} // held while one takes its pieces, so that two do not wait for each other
	pieces chan struct{}
}

func newRoom() room { return room{make(chan struct{}, 1), make(chan struct{}, mostRoom>>20)} }

// acquire waits for room for so many bytes, at most [MostBody]. The function that it
// returns gives it back, once.
func (r room) acquire(ctx context.Context, bytes int64) (release func(), err error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	taken := 0
	free := func() {
		for ; taken > 0; taken-- {
			<-r.pieces
		}
	}
	for range bytes>>20 + 1 {
		select {
		case r.pieces <- struct{}{}:
			taken++
		case <-ctx.Done():
			free()
			return nil, ctx.Err()
		}
	}
	return free, nil
}
