package control

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dsh-go/dsh/sdk/api/controlv1"
)

func encodeInfo(i Info) *controlv1.Host {
	return &controlv1.Host{Pid: int64(i.PID), Config: i.Config, Started: timestamppb.New(i.Started), Seams: i.Seams, Socket: i.Socket}
}

func decodeInfo(h *controlv1.Host) Info {
	return Info{PID: int(h.GetPid()), Config: h.GetConfig(), Started: h.GetStarted().AsTime(), Seams: h.GetSeams(), Socket: h.GetSocket()}
}

func encodeRow(r Row) *controlv1.Row {
	row := &controlv1.Row{
		Id: r.ID, Plugin: r.Plugin, State: r.Phase, Reason: r.Reason, Generation: int64(r.Generation), Pid: int64(r.PID), Rss: r.RSS,
		Restarts: int64(r.Restarts),
	}
	if !r.Since.IsZero() {
		row.Since = timestamppb.New(r.Since)
	}
	for _, seam := range r.Provides {
		row.Provides = append(row.Provides, &controlv1.Row_Provide{Seam: seam, Contribution: slices.Contains(r.Contributes, seam)})
	}
	for _, seam := range r.Injects {
		row.Injects = append(row.Injects, &controlv1.Row_Inject{Seam: seam, Optional: slices.Contains(r.Optional, seam)})
	}
	for _, i := range r.Retiring {
		row.Retiring = append(row.Retiring, &controlv1.Retiring{
			Generation: int64(i.Generation), Pid: int64(i.PID), Rss: i.RSS, KeptBy: i.KeptBy,
		})
	}
	return row
}

func decodeRow(row *controlv1.Row) Row {
	r := Row{
		ID: row.GetId(), Plugin: row.GetPlugin(), Phase: row.GetState(), Reason: row.GetReason(), Generation: int(row.GetGeneration()),
		PID: int(row.GetPid()), RSS: row.GetRss(), Restarts: int(row.GetRestarts()), Since: asTime(row.GetSince()),
	}
	for _, p := range row.GetProvides() {
		r.Provides = append(r.Provides, p.GetSeam())
		if p.GetContribution() {
			r.Contributes = append(r.Contributes, p.GetSeam())
		}
	}
	for _, i := range row.GetInjects() {
		r.Injects = append(r.Injects, i.GetSeam())
		if i.GetOptional() {
			r.Optional = append(r.Optional, i.GetSeam())
		}
	}
	for _, i := range row.GetRetiring() {
		r.Retiring = append(r.Retiring, Retiring{int(i.GetGeneration()), int(i.GetPid()), i.GetRss(), i.GetKeptBy()})
	}
	return r
}

func asTime(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
