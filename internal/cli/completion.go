// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/divvy-gpu/divvy/internal/client"
)

// completionDeadline keeps the Tab key quick when an agent does not answer.
const completionDeadline = 300 * time.Millisecond

func (a *app) completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script that completes commands, flags, shares and GPUs",
		Long: `Prints a completion script for a shell:

  bash   source <(divvy completion bash)
  zsh    divvy completion zsh > "${fpath[1]}/_divvy"
  fish   divvy completion fish > ~/.config/fish/completions/divvy.fish`,
		Example:   `  source <(divvy completion bash)`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("one shell: bash, zsh or fish")
			}
			return nil
		},
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		root := cmd.Root()
		switch args[0] {
		case "bash":
			return bashCompletion(root, a.stdout)
		case "zsh":
			return root.GenZshCompletion(a.stdout)
		case "fish":
			return root.GenFishCompletion(a.stdout, true)
		}
		return usage(fmt.Errorf("shell %q is not bash, zsh or fish", args[0]))
	})
	return cmd
}

// bashWords finds the words before the cursor where the bash-completion package
// is not installed, which the generated script takes for granted.
const bashWords = `    if ! declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        local line=${COMP_LINE:0:COMP_POINT}
        read -ra words <<<"$line"
        [[ $line == *[[:space:]] ]] && words+=("")
        cword=$((${#words[@]} - 1)) cur=${words[-1]} prev=${words[-2]-}
        return
    fi
`

// bashCompletion writes the generated script, made to work by itself.
func bashCompletion(root *cobra.Command, out io.Writer) error {
	var script bytes.Buffer
	if err := root.GenBashCompletionV2(&script, true); err != nil {
		return fmt.Errorf("write completion for bash: %w", err)
	}
	const call = "    _get_comp_words_by_ref "
	before, after, ok := strings.Cut(script.String(), call)
	if !ok {
		return errors.New("write completion for bash: the generated script has no place for its words")
	}
	_, err := io.WriteString(out, before+bashWords+call+after)
	return err
}

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// complete says how the value of a flag is completed.
func complete(cmd *cobra.Command, flag string, by completer) {
	// It fails only for a flag that does not exist or has one already.
	if err := cmd.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic(err)
	}
}

// formerly has a flag answer to the name that it had before.
func formerly(cmd *cobra.Command, old, flag string) {
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == old {
			name = flag
		}
		return pflag.NormalizedName(name)
	})
}

func fileCompletion(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// words completes from a fixed list.
func words[T ~string](all ...T) completer {
	list := make([]string, len(all))
	for i, word := range all {
		list[i] = string(word)
	}
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return startingWith(typed, list), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

func startingWith(typed string, list []string) []string {
	var kept []string
	for _, word := range list {
		if strings.HasPrefix(word, typed) {
			kept = append(kept, word)
		}
	}
	return kept
}

// completeShares offers the names of shares, with their quota.
func (a *app) completeShares(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Name() != "run" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(client.Looking(context.Background()), completionDeadline)
	defer cancel()
	at, err := a.find(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := at.client.Shares(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, share := range list.Shares {
		names = append(names, share.Name+"\t"+quota(share)+" on "+gpusOf(share))
	}
	return startingWith(typed, names), cobra.ShellCompDirectiveNoFileComp
}

// completeCards offers the UUIDs of cards, with their names.
func (a *app) completeCards(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(client.Looking(context.Background()), completionDeadline)
	defer cancel()
	at, err := a.find(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := at.client.Devices(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var cards []string
	for _, card := range list.Cards {
		cards = append(cards, card.UUID+"\t"+card.Name)
	}
	return startingWith(typed, cards), cobra.ShellCompDirectiveNoFileComp
}
