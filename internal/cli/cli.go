// SPDX-License-Identifier: Apache-2.0

// Package cli holds the subcommands of divvy, their output and their exit
// codes. It is the only place where the parts of the product are put together.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// app is what every subcommand needs: the three streams and the flags that
// stand for the whole command line.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string

	target  target // which agent is meant
	overlap bool   // an agent of our own lets shares overlap
	host    string // what a session of our own plays to be

	// runs is set when a command's own code has begun: an error from before
	// then is wrong usage.
	runs bool
}

// Main runs the divvy command line and returns its exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, getenv: os.Getenv}
	return a.main(args, a.commands())
}

func (a *app) main(args []string, commands []command) int {
	root := a.root(args, commands)
	root.SetArgs(args)
	err := root.Execute()
	if err != nil && !a.runs {
		err = usage(err)
	}
	var silent *exitError
	if err != nil && !errors.As(err, &silent) {
		a.complain(err)
	}
	return exitCode(err)
}

// command is a command that is made when it is needed: all of them, with their flags, take
// a tenth of the time of a short one.
type command struct {
	name string
	make func() *cobra.Command
}

func (a *app) commands() []command {
	return []command{
		{"demo", a.demoCommand},
		{"run", a.runCommand},
		{"ps", a.psCommand},
		{"devices", a.devicesCommand},
		{"events", a.eventsCommand},
		{"why", a.whyCommand},
		{"share", a.shareCommand},
		{"plan", a.planCommand},
		{"estimate", a.estimateCommand},
		{"advise", a.adviseCommand},
		{"partition", a.partitionCommand},
		{"cdi", a.cdiCommand},
		{"simulate", a.simulateCommand},
		{agentName, func() *cobra.Command { return a.agentCommand(a.becomeAgent) }},
		{"serve", a.serveCommand},
		{"remote", a.remoteCommand},
		{"certs", a.certsCommand},
		{"web", a.webCommand},
		{"usage", a.usageCommand},
		{"history", a.historyCommand},
		{"audit", a.auditCommand},
		{"bench", a.benchCommand},
		{"doctor", a.doctorCommand},
		{"cleanup", a.cleanupCommand},
		{"version", a.versionCommand},
		{"completion", a.completionCommand},
		{isolateCommand, a.isolateCommand},
		{ignoreCommand, a.ignoreCommand},
		{wakeCommand, a.wakeCommand},
		{workingCommand, a.workingCommand},
		{relayingCommand, a.relayingCommand},
		{passingCommand, a.passingCommand},
	}
}

// root is divvy itself, with the command that the first argument names, or with all.
func (a *app) root(args []string, commands []command) *cobra.Command {
	root := &cobra.Command{
		Use:   "divvy",
		Short: "Divide GPUs between unmodified programs",
		Long: `Divvy divides GPUs: each share of a GPU is held to its memory and its time,
for programs that know nothing of it. Without a GPU, add --simulate.`,
		Example: `  divvy run --simulate --mem 2GiB -- divvy devices`,
		Args:    subcommand,
		Version: version,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.runs = true
			return cmd.Help()
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return withHint(usage(plainFlagError(err)), cmd.CommandPath()+" --help")
	})
	root.CompletionOptions.DisableDefaultCmd = true
	if i := slices.IndexFunc(commands, func(c command) bool { return len(args) > 0 && c.name == args[0] }); i >= 0 {
		commands = commands[i : i+1]
	}
	for _, c := range commands {
		root.AddCommand(c.make())
	}
	root.Flags().Bool("version", false, "print the version")
	root.SetVersionTemplate(versionLine())
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(helpTemplate)
	for _, command := range root.Commands() {
		command.Flags().SortFlags = false
	}
	return root
}

// helpTemplate ends with the example.
const helpTemplate = `{{with or .Long .Short}}{{. | trimTrailingWhitespaces}}{{end}}

Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND{{else}}{{.UseLine}}{{end}}
{{- if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}
{{- if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}
{{- if .HasExample}}

Example:
{{.Example}}{{end}}
`

// subcommand is the Args of a command that only holds others: whatever is left
// of its arguments names none of them.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2 // letters
	alike := cmd.SuggestionsFor(args[0])
	if len(alike) == 0 {
		alike = []string{"--help"}
	}
	for i, word := range alike {
		alike[i] = cmd.CommandPath() + " " + word
	}
	return withHint(fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath()), strings.Join(alike, " or "))
}

// noArguments is the Args of a command that takes flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return withHint(fmt.Errorf("%s takes no argument: %q", cmd.CommandPath(), args[0]), cmd.CommandPath()+" --help")
}

// action wraps the code of a subcommand so that Main can tell its errors from
// those of the command line.
func (a *app) action(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.runs = true
		return run(cmd, args)
	}
}

// group is a command that only holds others.
func (a *app) group(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{Use: use, Short: short, Example: example, Args: subcommand, RunE: func(cmd *cobra.Command, _ []string) error {
		return withHint(usage(errors.New("which one?")), cmd.CommandPath()+" --help")
	}}
	for _, command := range commands {
		command.Flags().SortFlags = false
	}
	group.AddCommand(commands...)
	return group
}
