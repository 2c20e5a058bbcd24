package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// stopWaiting wraps an error that no further waiting can cure.
type stopWaiting struct{ error }

func (s stopWaiting) Unwrap() error { return s.error }

// patience bounds every wait: generous, because machines that run tests are busy.
const patience = 120 * time.Second

// wait asks until the answer is nil. It ends early when the whole instance ends or a part died.
func (s *supervisor) wait(ctx context.Context, what string, ask func(context.Context) error) error {
	return s.waitFor(ctx, patience, what, ask)
}

func (s *supervisor) waitFor(ctx context.Context, limit time.Duration, what string, ask func(context.Context) error) error {
	deadline := time.Now().Add(limit)
	pause := 10 * time.Millisecond
	for {
		attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := ask(attempt)
		cancel()
		dead := (*part)(nil)
		if err != nil {
			dead = s.dead()
		}
		var stop stopWaiting
		switch {
		case err == nil:
			return nil
		case errors.As(err, &stop):
			return stop.error
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.dir.full():
			return fmt.Errorf("the disk that holds %s is full: free some space, or use another disk (--dir, or TMPDIR for cargo xtask)", s.dir.path)
		case dead != nil:
			return s.postMortem(dead)
		case time.Now().After(deadline):
			return fmt.Errorf("waited %s for %s: %w", limit, what, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		pause = min(pause*3/2, 200*time.Millisecond)
	}
}

// answers asks an URL of one of our parts, which proves itself by our CA, and wants 200.
func (s *supervisor) answers(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := s.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}
