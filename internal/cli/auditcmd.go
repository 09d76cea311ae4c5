// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/audit"
	"github.com/divvy-gpu/divvy/internal/client"
)

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Who did what, and whether what is kept of it was changed",
		Long: `The agent keeps who did what: changes of shares and GPUs, refusals, programs that come, are
refused memory and leave. Each line has the hash of the one before. Root can write all of it
anew, or cut its end: keep what divvy audit head prints elsewhere, and give it to verify.`,
		Example: `  divvy audit list --verb share.`,
	}
	cmd.AddCommand(a.auditListCommand(), a.auditHeadCommand(), a.auditVerifyCommand())
	return cmd
}

// auditPlace is where an audit is: an agent's, or a folder.
type auditPlace struct{ dir string }

func (p *auditPlace) flag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.dir, "dir", "", "read the files in this `folder`, whatever the agent says")
	complete(cmd, "dir", fileCompletion)
}

func (a *app) auditListCommand() *cobra.Command {
	var p auditPlace
	var since uint64
	var last int
	var verb string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the latest lines",
		Long: `Shows the latest lines, oldest first. For root, the agent's user and operators (divvy agent
--operators). A verb that ends with a dot stands for all that begin so: share., card., agent.`,
		Example: `  divvy audit list --last 20 --verb deny`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if last < 1 || last > audit.MostLines {
			return usage(fmt.Errorf("--last: %d is not 1 to %d", last, audit.MostLines))
		}
		is, err := a.readAudit(client.Looking(cmd.Context()), p.dir, audit.Wanted{Since: since, Last: last, Verb: verb})
		if err != nil {
			return err
		}
		if asJSON {
			return a.writeJSON(is)
		}
		if is.Unread > 0 {
			a.note("%d lines cannot be read: divvy audit verify says more", is.Unread)
		}
		rows := newTable("SEQ", "TIME", "UID", "PID", "BY", "VERB", "OF", "OUTCOME", "TIMES", "WHY")
		for _, l := range is.Lines {
			pid := "-"
			if l.Actor.PID > 0 {
				pid = strconv.Itoa(l.Actor.PID)
			}
			rows.add(strconv.FormatUint(l.Sequence, 10), l.Time.Format(time.RFC3339), strconv.Itoa(l.Actor.UID), pid, cmp.Or(oneLine(l.Actor.Name), l.Actor.Via), oneLine(l.Verb),
				cmp.Or(oneLine(l.Object), "-"), oneLine(l.Outcome), strconv.FormatUint(max(l.Count, 1), 10), cmp.Or(oneLine(l.Reason), "-"))
		}
		return rows.write(a.stdout)
	})
	flags := cmd.Flags()
	flags.Uint64Var(&since, "since", 0, "only lines after this `number`")
	flags.IntVar(&last, "last", 100, "so many `lines`, the latest")
	flags.StringVar(&verb, "verb", "", "only `what` was done so")
	complete(cmd, "since", words[string]())
	complete(cmd, "last", words("20", "100", "1000", strconv.Itoa(audit.MostLines)))
	complete(cmd, "verb", words("agent.", "attach", "card.", "connect", "deny", "gap", "leave", "read", "share.", "summed", "usage.closed"))
	p.flag(cmd)
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// readAudit reads lines from a folder, or asks the agent.
func (a *app) readAudit(ctx context.Context, dir string, wanted audit.Wanted) (api.Audit, error) {
	if dir != "" {
		lines, unread, err := audit.Read(dir, wanted)
		if lines == nil {
			lines = []api.AuditLine{}
		}
		return api.Audit{Schema: api.SchemaAudit, Lines: lines, Unread: unread}, ofFiles(err)
	}
	at, err := a.find(ctx)
	if err != nil {
		return api.Audit{}, err
	}
	is, err := at.client.Audit(ctx, wanted.Since, wanted.Last, wanted.Verb)
	if err != nil {
		return is, at.explain(err)
	}
	return is, nil
}

// ofFiles gives errors of reading files their class.
func ofFiles(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notThere(err)
	case errors.Is(err, fs.ErrPermission):
		return withHint(&codedError{exitNotAllowed, err}, "ask root")
	}
	return err
}

func (a *app) auditHeadCommand() *cobra.Command {
	var p auditPlace
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "head",
		Short: "Show the number and the hash of the last line",
		Long: `Shows the last line's number and hash, NUMBER:HASH. Kept on another machine, it shows with
divvy audit verify --head that nothing up to there was changed or cut.`,
		Example: `  divvy audit head >> /mnt/elsewhere/heads`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		head, err := a.auditHead(client.Looking(cmd.Context()), p.dir)
		if err != nil {
			return err
		}
		if asJSON {
			return a.writeJSON(head)
		}
		_, err = fmt.Fprintln(a.stdout, audit.Head{Sequence: head.Sequence, Hash: head.Hash})
		return err
	})
	p.flag(cmd)
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) auditHead(ctx context.Context, dir string) (api.AuditHead, error) {
	if dir != "" {
		is, err := audit.Verify(dir, nil)
		if err == nil && !is.OK {
			return is.Head, withHint(errors.New("the audit is not right"), "divvy audit verify --dir "+dir)
		}
		return is.Head, ofFiles(err)
	}
	at, err := a.find(ctx)
	if err != nil {
		return api.AuditHead{}, err
	}
	head, err := at.client.AuditHead(ctx)
	if err != nil {
		return head, at.explain(err)
	}
	return head, nil
}

func (a *app) auditVerifyCommand() *cobra.Command {
	var p auditPlace
	var heads []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that no line was changed, removed, moved or put in",
		Long: `Reads all lines and names the first that is not right (exit code 1). With --head, which divvy
audit head printed before, it also shows a cut end, or a chain that was written anew. It reads
the files, which are root's: those of the agent, of this machine's, or of --dir, as a copy.`,
		Example: `  divvy audit verify --dir /mnt/copy/audit --head 4711:HASH`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		wanted := []*audit.Head{nil}
		for i, text := range heads {
			head, err := audit.ParseHead(text)
			if err != nil {
				return usage(fmt.Errorf("--head: %w", err))
			}
			if i == 0 {
				wanted = nil
			}
			wanted = append(wanted, &head)
		}
		dir, err := a.auditFolder(client.Looking(cmd.Context()), p.dir)
		if err != nil {
			return err
		}
		var is api.AuditVerified
		for _, head := range wanted {
			if is, err = audit.Verify(dir, head); err != nil {
				return ofFiles(err)
			}
			if !is.OK {
				break
			}
		}
		return a.showVerified(is, asJSON)
	})
	cmd.Flags().StringArrayVar(&heads, "head", nil, "`head` that divvy audit head printed before; may be repeated")
	complete(cmd, "head", words[string]())
	p.flag(cmd)
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// auditFolder is where the files are: as is said, as the agent says, or the machine's, whose agent need not run.
func (a *app) auditFolder(ctx context.Context, dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	at, err := a.find(ctx)
	if err == nil {
		var head api.AuditHead
		if head, err = at.client.AuditHead(ctx); err == nil {
			return head.Directory, nil
		}
		err = at.explain(err)
	}
	machine := filepath.Join(agent.System().JournalDirectory, "audit")
	if errors.Is(err, client.ErrUnreachable) && a.chosenSocket() == "" && a.target.simulate == "" && exists(machine) {
		return machine, nil
	}
	return "", err
}

func (a *app) showVerified(is api.AuditVerified, asJSON bool) error {
	if asJSON {
		if err := a.writeJSON(is); err != nil {
			return err
		}
	} else if is.OK {
		fmt.Fprintf(a.stdout, "right: lines %d to %d, files: %d, gaps: %d\nhead %s\n", is.First, is.Head.Sequence, is.Files, is.Gaps,
			audit.Head{Sequence: is.Head.Sequence, Hash: is.Head.Hash})
		if is.Gaps > 0 {
			a.note("lines say that something is missing: divvy audit list --verb gap")
		}
	} else {
		where := is.Bad.File
		if is.Bad.Line > 0 {
			where += ":" + strconv.FormatUint(is.Bad.Line, 10)
		}
		fmt.Fprintf(a.stdout, "wrong: %s: %s\nthe last line before that is right is %d\n", oneLine(where), oneLine(is.Bad.Why), is.Head.Sequence)
	}
	if !is.OK {
		return &exitError{exitFailed}
	}
	return nil
}
