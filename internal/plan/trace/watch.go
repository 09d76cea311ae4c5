// SPDX-License-Identifier: Apache-2.0

package trace

// watched is what a cluster told of its objects while it was watched (kubectl get --watch
// --output-watch-events): of each the last counts, and what was deleted is gone.
type watched struct {
	order []string // of those that there are or were, as they came first
	last  map[string]watchedObject
}

type watchedObject struct {
	*kubeObject
	line int
}

// The kinds of events of the interface.
const (
	eventAdded    = "ADDED"
	eventModified = "MODIFIED"
	eventDeleted  = "DELETED"
	eventBookmark = "BOOKMARK" // how far it has told, of no object
	eventError    = "ERROR"    // the object is what the cluster answered
)

// isEvent says whether an object is an event of a watch: it has no kind, as all others do, or
// that of the interface's own envelope.
func (o *kubeObject) isEvent() bool {
	return (o.Kind == "" || o.Kind == "WatchEvent") && o.Type != "" && o.Object != nil
}

// take keeps an event, and says what is wrong with it.
func (w *watched) take(event *kubeObject, line int) (wrong string) {
	o := event.Object
	if o.Kind == "" {
		o.Kind = o.looksLike()
	}
	key := claimKey(o.Kind, o.Metadata.Namespace, o.Metadata.Name)
	switch event.Type {
	case eventAdded, eventModified:
		if w.last == nil {
			w.last = map[string]watchedObject{}
		}
		if _, there := w.last[key]; !there {
			w.order = append(w.order, key)
		}
		w.last[key] = watchedObject{o, line}
	case eventDeleted:
		delete(w.last, key)
	case eventBookmark:
	case eventError:
		return answer(o.Message)
	default:
		return "an event of an unknown type: want what kubectl get --output-watch-events prints"
	}
	return ""
}

// settle hands on what there is in the end, and forgets it.
func (w *watched) settle(take func(o *kubeObject, line int) error) error {
	order, last := w.order, w.last
	*w = watched{}
	for _, key := range order {
		at, there := last[key]
		if !there {
			continue
		}
		delete(last, key) // one that was deleted and came again stands in order twice
		if err := take(at.kubeObject, at.line); err != nil {
			return err
		}
	}
	return nil
}
