package model

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// However many come, what is held at once stays within the room, and all get their turn.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		var held, most atomic.Int64
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				bytes := int64(i) << 17
				release, err := r.acquire(t.Context(), bytes)
				if err != nil {
					t.Error(err)
					return
				}
				now := held.Add(bytes)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				held.Add(-bytes)
				release()
				release() // twice is once
			})
		}
		wg.Wait()
		if most.Load() > mostRoom || len(r.pieces) != 0 || len(r.turn) != 0 {
			t.Errorf("%d bytes were held, %d pieces are left", most.Load(), len(r.pieces))
		}

		// Who does not wait any more gives back what it has.
		all, err := r.acquire(t.Context(), mostRoom-1<<20)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		for range cap(errs) {
			go func() {
				_, err := r.acquire(ctx, MostBody)
				errs <- err
			}()
		}
		synctest.Wait()
		cancel()
		for range cap(errs) {
			if err := <-errs; err == nil {
				t.Error("there is no room")
			}
		}
		all()
		if len(r.pieces) != 0 || len(r.turn) != 0 {
			t.Errorf("%d pieces are left", len(r.pieces))
		}
	})
}

// Two that need more than half of it do not each hold what the other waits for.
func TestRoomForTwoLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		var held []func()
		for range 2 {
			release, err := r.acquire(t.Context(), MostBody-1)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				release, err := r.acquire(t.Context(), MostBody)
				if err != nil {
					t.Error(err)
					return
				}
				release()
			})
		}
		for _, release := range held {
			synctest.Wait()
			release()
		}
		wg.Wait()
	})
}
