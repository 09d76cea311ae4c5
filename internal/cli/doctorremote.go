// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/library"
	"github.com/divvy-gpu/divvy/internal/remote/certificates"
	"github.com/divvy-gpu/divvy/internal/remote/protocol"
	"github.com/divvy-gpu/divvy/internal/remote/server"
)

// doctorPings is how many round trips the doctor takes the median of.
const doctorPings = 9

// doctorBytes is room for a context on any GPU, and little of what a tenant has.
const doctorBytes = 1 << 30

// examineRemote says whether a server's GPU can be used from here, and by these programs.
func (a *app) examineRemote(ctx context.Context, remote string, programs []string, report *doctorReport) {
	report.add("version", checkOK, fmt.Sprintf("divvy %s, remote calls %d to %d", version, protocol.Oldest, protocol.Version), "")
	dir, err := a.libraries()
	if err == nil && !exists(dir.Remote()) {
		err = withHint(fmt.Errorf("%w: no %s", library.ErrNotFound, dir.Remote()), "make build, or set DIVVY_LIBDIR to the lib/divvy that was built")
	}
	if err != nil {
		report.failed("libraries", err)
	} else {
		report.add("libraries", checkOK, string(dir), "")
	}
	if at, err := server.ParseAddress(remote); err == nil && at.Socket == "" {
		a.examineIdentity(report)
	}
	if status, err := a.remoteStatus(ctx, remote); err != nil {
		report.failed("server", err)
	} else {
		a.examineServer("server", remote, status, report)
		a.examineRun(ctx, remote, report)
	}
	for _, program := range programs {
		examineRemoteProgram(program, a.getenv("LD_LIBRARY_PATH"), report)
	}
}

// examineServe asks this machine's servers of remote calls, where there are any.
func (a *app) examineServe(ctx context.Context, report *doctorReport) {
	for _, dir := range []string{agent.System().Directory, a.privateRoot().Path()} {
		socket := filepath.Join(dir, "serve.sock")
		if !exists(socket) {
			continue
		}
		remote := "unix:" + socket
		status, err := a.remoteStatus(ctx, remote)
		switch {
		case errors.Is(err, unix.EACCES):
			report.add("serve", checkNote, err.Error(), "") // another user's
		case errors.Is(err, unix.ECONNREFUSED):
			report.add("serve", checkNote, "none is running: "+socket+" was left", "")
		case err != nil:
			report.failed("serve", err)
		default:
			a.examineServer("serve", remote, status, report)
		}
	}
}

// examineIdentity says by which certificate a server knows us.
func (a *app) examineIdentity(report *doctorReport) {
	bundle, path, err := a.readIdentity()
	if err != nil {
		report.failed("identity", err)
		return
	}
	tenant, user, err := certificates.Identity(bundle.Leaf)
	if err != nil {
		report.failed("identity", fmt.Errorf("%s: %w", path, err))
		return
	}
	until := bundle.Leaf.NotAfter
	detail := fmt.Sprintf("%s/%s by %s, good until %s", tenant, user, path, until.Local().Format(time.DateOnly))
	switch left := time.Until(until); {
	case left < 0:
		report.add("identity", checkFail, detail+": it has expired", "have another one issued: divvy certs issue")
	case left < 7*24*time.Hour:
		report.add("identity", checkNote, detail+": that is soon", "have another one issued: divvy certs issue")
	default:
		report.add("identity", checkOK, detail, "")
	}
}

// examineServer says what a server tells of itself.
func (a *app) examineServer(name, remote string, status protocol.StatusDocument, report *doctorReport) {
	detail := fmt.Sprintf("%s answers: divvy %s, %s", remote, oneLine(status.Version), counted(len(status.Runs), "run that we may see", "runs that we may see"))
	switch {
	case status.Draining:
		report.add(name, checkFail, detail+"; it is about to end", "ask again when it is back")
	case status.Version != version:
		report.add(name, checkNote, detail+"; here it is "+version, "install the same release on both sides")
	default:
		report.add(name, checkOK, detail, "")
	}
}

// examineRun asks for a run, looks what it is given, and lets it go.
func (a *app) examineRun(ctx context.Context, remote string, report *doctorReport) {
	var is protocol.RunningDocument
	conn, _, err := a.askServer(ctx, remote, func(server io.ReadWriter) (err error) {
		d := runDocument(under{}, []string{"doctor"})
		d.MemoryBytes = doctorBytes
		is, _, err = protocol.AskRun(server, d)
		return err
	})
	if err != nil {
		report.failed("gpu", err)
		return
	}
	defer giveBack(conn)
	detail := fmt.Sprintf("%s (%s), shares held at level %s, driver %s", oneLine(is.Device.Name), shortUUID(is.Device.UUID), is.Device.Enforcement, oneLine(is.Driver.Release))
	report.add("gpu", checkOK, detail, "")
	for _, note := range is.Notes {
		report.add("gpu", checkNote, oneLine(note), "")
	}
	if folder, err := a.remoteLibrary(is.Driver); err != nil {
		report.failed("library", err)
	} else {
		report.add("library", checkOK, fmt.Sprintf("fitted to the server's driver in %s: %d calls of CUDA, %d of NVML", folder, len(is.Driver.CUDA), len(is.Driver.NVML)), "")
	}
	took, err := roundTrip(conn)
	if err != nil {
		report.failed("round trip", a.remoteFailed(remote, err))
		return
	}
	report.add("round trip", checkOK, fmt.Sprintf("%d us to the server and back, median of %d: each call that waits takes that at least", took.Microseconds(), doctorPings), "")
}

// giveBack ends a run, and waits until the server has nothing of it any more.
func giveBack(conn net.Conn) {
	if u, is := conn.(*net.UnixConn); is && u.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, conn) // within the time that it may take to answer
	}
	_ = conn.Close()
}

// roundTrip is the median time that a server takes to answer on a run's connection.
func roundTrip(conn io.ReadWriter) (time.Duration, error) {
	var all []time.Duration
	for range doctorPings {
		begun := time.Now()
		if err := protocol.Write(conn, protocol.Ping, nil); err != nil {
			return 0, err
		}
		f, payload, err := protocol.Read(conn, protocol.MaxControl)
		if err != nil {
			return 0, err
		}
		if f.Op == protocol.Refused {
			r, err := protocol.DecodeRefusal(payload)
			return 0, errors.Join(r, err)
		}
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// examineRemoteProgram says whether a program finds a server's GPU, and uses what is carried.
func examineRemoteProgram(name, libraryPath string, report *doctorReport) {
	if isFolder(name) {
		report.add("program", checkFail, name+" is a folder: name a program", "")
		return
	}
	status, detail, hint := examineProgram(name)
	report.add("program", status, strings.Replace(detail, "nothing would be enforced", "it finds no GPU", 1), hint)
	path, err := findCommand(name)
	if err != nil {
		return // its check has said so
	}
	if uses := runtimeOf(path, libraryPath); uses != "" {
		report.add("calls", checkFail, uses, "")
	} else {
		report.add("calls", checkOK, path+" does not use NVIDIA's runtime library itself; what it loads decides", "")
	}
}
