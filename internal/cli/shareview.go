// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
)

func (a *app) shareView(_ context.Context, _ bool) error { return errors.New("TODO") }
