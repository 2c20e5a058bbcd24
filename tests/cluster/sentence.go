package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
)

// sentence turns an error into the one line that a person reads.
func sentence(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	var path *os.PathError
	switch {
	case errors.Is(err, syscall.ENOSPC) && errors.As(err, &path):
		return fmt.Sprintf("the disk is full: %s could not be written; free some space, or use another disk (--dir, or TMPDIR for cargo xtask)", path.Path)
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return "the disk is full: free some space, or use another disk (--dir, or TMPDIR for cargo xtask) (" + text + ")"
	}
	return text
}

var (
	klogPrefix = regexp.MustCompile(`^[IWEF]\d{4} [\d:.]+\s+\d+ [^\]]+\]\s*`)
	errorWords = regexp.MustCompile(`(?i)\b(error|fatal|panic|failed|unable|cannot|can't|no space left|in use|denied|invalid|unknown)`)
)

// logOffset is where a log ends now; what a part writes after its start is read from there.
func logOffset(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// logSince reads the end (at most 64 KiB) of what was written to a log from an offset on.
func logSince(path string, offset int64) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size()-offset > 64<<10 {
		offset = info.Size() - 64<<10
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return ""
	}
	text, _ := io.ReadAll(file)
	return string(text)
}

// lastMeaningfulLine finds the line of a log that most likely says why a part died: the last one that sounds like an
// error, before any stack trace, without log decoration.
func lastMeaningfulLine(log string) string {
	if i := strings.Index(log, "\ngoroutine "); i >= 0 {
		log = log[:i]
	}
	lines := strings.Split(log, "\n")
	last := ""
	for i := len(lines) - 1; i >= 0; i-- {
		line := strings.TrimSpace(lines[i])
		if line == "" || strings.HasPrefix(line, "--") || strings.HasPrefix(line, "Usage:") {
			continue
		}
		if last == "" {
			last = line
		}
		if errorWords.MatchString(line) {
			return plainLine(line)
		}
	}
	return plainLine(last)
}

func plainLine(line string) string {
	if strings.HasPrefix(line, "{") { // etcd, controller-runtime and Knative write JSON
		var entry map[string]any
		if json.NewDecoder(bytes.NewBufferString(line)).Decode(&entry) == nil {
			message, ok := entry["msg"].(string)
			if !ok {
				message, _ = entry["message"].(string)
			}
			if cause, ok := entry["error"].(string); ok {
				message += ": " + cause
			}
			line = message
		}
	}
	line = klogPrefix.ReplaceAllString(line, "")
	if len(line) > 400 {
		line = line[:400] + "..."
	}
	return line
}
