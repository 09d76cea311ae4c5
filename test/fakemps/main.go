// SPDX-License-Identifier: Apache-2.0

// Command fakemps plays nvidia-cuda-mps-control for tests: the options -d and -f,
// commands by lines on standard input, a pipe directory with a control socket
// for clients, one for the command line and a pid file, a log directory, one
// server per user. It holds no card; the limits that it gives a client are kept
// by the stand-in driver (clib/standin/cuda/mps.c), by a protocol of our own: the
// client connects to the control socket and stays, the answer is one line
// "PERCENT BYTES", bytes 0 for no limit.
//
// FAKE_MPS_FAULT makes it fail, by words with commas between them:
//
//	silent     starts and never listens
//	deaf       takes commands and never answers
//	forgets    takes limits and keeps the old ones
//	crashes    dies when the first client connects
//	fault      its servers are in state FAULT
//	lingers    has its lock for a while after it has removed its pid file
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	foreground = "-f"
	background = "-d"
	multiuser  = "-multiuser-server"
	serverMode = "-fake-server"
	startFor   = 10 * time.Second
	lingerFor  = 300 * time.Millisecond
)

func main() {
	log.SetFlags(0)
	if err := play(os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func play(args []string) error {
	switch {
	case len(args) == 0:
		return frontend()
	case args[0] == serverMode:
		_, err := io.Copy(io.Discard, os.Stdin) // until the daemon ends
		return err
	case args[0] == foreground:
		return serve(slices.Contains(args, multiuser))
	case args[0] == background:
		return detach(args[1:])
	}
	return fmt.Errorf("unknown option %s", args[0])
}

func pipePath(name string) string {
	folder := os.Getenv("CUDA_MPS_PIPE_DIRECTORY")
	if folder == "" {
		folder = "/tmp/nvidia-mps"
	}
	return filepath.Join(folder, name)
}

func fails(how string) bool {
	return slices.Contains(strings.Split(os.Getenv("FAKE_MPS_FAULT"), ","), how)
}

// detach starts the daemon and waits until it listens.
func detach(args []string) error {
	if fails("silent") {
		return nil
	}
	daemon := exec.Command(os.Args[0], append([]string{foreground}, args...)...)
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := daemon.StdoutPipe()
	if err != nil {
		return err
	}
	if err := daemon.Start(); err != nil {
		return err
	}
	word := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		word <- strings.TrimSpace(line)
	}()
	select {
	case line := <-word:
		if line != "ready" {
			return errors.New(line)
		}
		return nil
	case <-time.After(startFor):
		return errors.New("the daemon does not come up")
	}
}

// frontend sends each line of standard input to the daemon.
func frontend() error {
	conn, err := net.Dial("unix", pipePath("control_privileged"))
	if err != nil {
		return errors.New("cannot find the MPS control daemon")
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if _, err := fmt.Fprintln(conn, lines.Text()); err != nil {
			return err
		}
		for {
			answer, err := answers.ReadString('\n')
			if strings.HasPrefix(lines.Text(), "quit") && errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return errors.New("connection to the MPS control daemon is broken")
			}
			if answer == ".\n" {
				break
			}
			fmt.Print(answer)
		}
	}
	return nil
}

// daemon is the control daemon. Its mutex guards what stands below it.
type daemon struct {
	multiuser bool
	mutex     sync.Mutex
	changed   *sync.Cond
	percent   string
	pinned    map[string]string // by what the card was called
	servers   []*server
	closing   bool
}

// server is one MPS server: a process of its own, so that its number is real.
type server struct {
	uid     int
	process *exec.Cmd
	input   io.Closer
	percent string
	pinned  map[string]string
	clients []int
}

func serve(multi bool) error {
	lock, err := os.OpenFile(pipePath("control_lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return errors.New("an instance of this daemon is already running")
	}
	d := &daemon{multiuser: multi, percent: "100.0", pinned: map[string]string{}}
	if given := os.Getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"); given != "" {
		d.percent = given
	}
	d.changed = sync.NewCond(&d.mutex)
	listeners := map[string]net.Listener{}
	for name, mode := range map[string]os.FileMode{"control": 0o666, "control_privileged": 0o700} {
		_ = os.Remove(pipePath(name))
		if listeners[name], err = net.Listen("unix", pipePath(name)); err != nil {
			return err
		}
		if err := os.Chmod(pipePath(name), mode); err != nil {
			return err
		}
	}
	if err := os.WriteFile(pipePath("nvidia-cuda-mps-control.pid"), fmt.Appendf(nil, "%d\n", os.Getpid()), 0o644); err != nil {
		return err
	}
	control, err := os.OpenFile(filepath.Join(os.Getenv("CUDA_MPS_LOG_DIRECTORY"), "control.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	log.SetOutput(control)
	log.Printf("Start, multiuser %v", multi)
	fmt.Println("ready")
	_ = os.Stdout.Close()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go accept(listeners["control"], d.client)
	go accept(listeners["control_privileged"], func(conn net.Conn) { d.commands(conn, ended) })
	<-ended
	_ = os.Remove(pipePath("nvidia-cuda-mps-control.pid"))
	if fails("lingers") {
		<-time.After(lingerFor)
	}
	log.Print("Exit")
	return nil
}

func accept(listener net.Listener, answer func(net.Conn)) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			answer(conn)
		}()
	}
}

// commands answers a command line; each answer ends with a line of one dot.
func (d *daemon) commands(conn net.Conn, ended chan<- os.Signal) {
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if fails("deaf") {
			continue
		}
		words := strings.Fields(lines.Text())
		log.Printf("NVIDIA command: %s", lines.Text())
		if len(words) > 0 && words[0] == "quit" {
			d.quit(words[1:])
			ended <- syscall.SIGTERM
			return
		}
		answer := d.command(words)
		if answer != "" {
			answer += "\n"
		}
		if _, err := fmt.Fprint(conn, answer+".\n"); err != nil {
			return
		}
	}
}

// quit waits until the clients are gone, or so many seconds.
func (d *daemon) quit(words []string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.closing = true
	if len(words) == 2 && words[0] == "-t" {
		seconds, _ := strconv.Atoi(words[1])
		time.AfterFunc(time.Duration(seconds)*time.Second, func() {
			d.mutex.Lock()
			defer d.mutex.Unlock()
			for _, s := range d.servers {
				s.clients = nil
			}
			d.changed.Broadcast()
		})
	}
	for slices.ContainsFunc(d.servers, func(s *server) bool { return len(s.clients) > 0 }) {
		d.changed.Wait()
	}
	for _, s := range d.servers {
		s.end()
	}
}

func (s *server) end() {
	_ = s.input.Close()
	_ = s.process.Wait()
}

func (d *daemon) command(words []string) string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	var s *server
	if len(words) > 1 {
		s = d.server(words[1])
	}
	has := func(name string, arguments int) bool {
		return len(words) == arguments+1 && words[0] == name
	}
	switch {
	case has("get_server_list", 0):
		return list(d.servers, func(s *server) int { return s.process.Process.Pid })
	case has("get_default_active_thread_percentage", 0):
		return d.percent
	case has("set_default_active_thread_percentage", 1):
		keep(&d.percent, words[1])
		return ""
	case has("get_default_device_pinned_mem_limit", 1):
		return limit(d.pinned, words[1])
	case has("set_default_device_pinned_mem_limit", 2):
		keepIn(d.pinned, words[1], words[2]) // whether there is such a card is not looked at
		return ""
	case s == nil:
		return "Invalid command or server"
	case has("get_server_status", 1) && fails("fault"):
		return "FAULT"
	case has("get_server_status", 1):
		return "ACTIVE"
	case has("get_client_list", 1):
		return list(s.clients, func(pid int) int { return pid })
	case has("get_active_thread_percentage", 1):
		return s.percent
	case has("set_active_thread_percentage", 2):
		keep(&s.percent, words[2])
		return ""
	case has("get_device_pinned_mem_limit", 2):
		return limit(s.pinned, words[2])
	case has("set_device_pinned_mem_limit", 3):
		keepIn(s.pinned, words[2], words[3])
		return ""
	}
	return "Unrecognized command"
}

func keep(at *string, value string) {
	if !fails("forgets") {
		*at = value
	}
}

func keepIn(at map[string]string, card, value string) {
	if !fails("forgets") {
		at[card] = value
	}
}

func limit(of map[string]string, card string) string {
	if value, ok := of[card]; ok {
		return value
	}
	return "No limit is set"
}

func list[T any](of []T, number func(T) int) string {
	var lines []string
	for _, v := range of {
		lines = append(lines, strconv.Itoa(number(v)))
	}
	return strings.Join(lines, "\n")
}

func (d *daemon) server(pid string) *server {
	for _, s := range d.servers {
		if strconv.Itoa(s.process.Process.Pid) == pid {
			return s
		}
	}
	return nil
}

// client serves one client process for as long as it is connected.
func (d *daemon) client(conn net.Conn) {
	if fails("crashes") {
		os.Exit(1)
	}
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return
	}
	var peer *unix.Ucred
	if raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return
	}
	d.mutex.Lock()
	s, err := d.serverFor(int(peer.Uid))
	if err != nil {
		d.mutex.Unlock()
		return
	}
	pid := int(peer.Pid)
	s.clients = append(s.clients, pid)
	percent, bytes := s.percent, uint64(0)
	if value, ok := s.pinned[os.Getenv("CUDA_VISIBLE_DEVICES")]; ok {
		bytes = amount(value)
	}
	d.mutex.Unlock()
	if _, err := fmt.Fprintf(conn, "%s %d\n", percent, bytes); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	s.clients = slices.DeleteFunc(s.clients, func(p int) bool { return p == pid })
	d.changed.Broadcast()
}

// serverFor returns the server of a user's clients. Without -multiuser-server it
// waits until another user's clients are gone, and ends that user's server.
func (d *daemon) serverFor(uid int) (*server, error) {
	if d.multiuser {
		uid = 0
	}
	for {
		if len(d.servers) == 0 {
			break
		}
		if d.servers[0].uid == uid {
			return d.servers[0], nil
		}
		if len(d.servers[0].clients) == 0 {
			d.servers[0].end()
			d.servers = nil
			break
		}
		d.changed.Wait()
	}
	if d.closing {
		return nil, errors.New("closing")
	}
	s := &server{uid: uid, process: exec.Command(os.Args[0], serverMode), percent: d.percent, pinned: map[string]string{}}
	for card, value := range d.pinned {
		s.pinned[card] = value
	}
	if os.Geteuid() == 0 {
		s.process.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	var err error
	if s.input, err = s.process.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	d.servers = append(d.servers, s)
	log.Printf("New server %d for uid %d", s.process.Process.Pid, uid)
	return s, nil
}

// amount reads an integer followed by M or G.
func amount(text string) uint64 {
	number, err := strconv.ParseUint(strings.TrimRight(text, "MG"), 10, 32)
	if err != nil {
		return 0
	}
	if strings.HasSuffix(text, "G") {
		return number << 30
	}
	return number << 20
}
