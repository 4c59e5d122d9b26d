package probe

import (
	"testing"

	"tendril/corpora"
)

// notFromInside says of the corpus's probes that are no probes here why they are
// not, and where what they ask for is proven.
var notFromInside = map[string]string{
	"C05": "no operation class can be called from inside", "C06": "no operation class can be called from inside",
	"C07": "no request can be made from inside", "C08": "the control plane is no file that a Terrarium shows: F-probes",
	"F28": "gVisor's own inotify sees gVisor's own files", "F32": "hand-over: stoma/guest collect tests, substrate records",
	"F33": "hand-over: collect runs when no process of the Sprout is left", "F34": "hand-over: stoma/guest collect tests",
	"F35": "hand-over: stoma/guest collect tests", "F39": "hand-over: substrate records",
	"F42": "two Terrariums at once: terrariumtest", "F43": "the disk limit: terrariumtest",
	"G01": "substrate canary tests", "G04": "substrate canary tests", "G06": "substrate canary tests", "G07": "substrate canary tests",
	"G10": "substrate canary tests", "G11": "substrate canary tests", "G12": "substrate canary tests", "G14": "substrate name tests",
	"G15": "substrate name tests", "G16": "submodules are never initialised: substrate", "G18": "substrate records", "G20": "substrate reference tests",
	"G21": "the author is fixed: substrate", "G27": "foreign owners are refused: substrate", "G28": "no attribute is honoured: substrate",
	"G29": "flags for the reviewer: substrate", "K06": "no LSM profile is claimed",
	"K23": "trees: stoma/guest, acceptance limits", "K25": "PID 1 reaps: stoma/guest",
	"N09": "two Terrariums at once: terrariumtest", "N13": "two Terrariums at once: terrariumtest",
	"N15": "nothing is mediated", "O02": "output limit: acceptance limits", "O03": "output without lines: display",
	"O10": "no JSON comes from inside", "O12": "output has no authority: there is none to have",
	"Q02": "memory limit: terrariumtest", "Q06": "processor limit: terrariumtest", "Q08": "block input and output are not bounded: docs/threat-model.md",
	"Q10": "trees: stoma/guest", "Q11": "nothing inside can hang a mount of the host", "Q12": "runs at once: acceptance",
	"Q13": "leftovers: acceptance", "Q14": "SIGKILL: acceptance", "Q15": "memory limit: terrariumtest",
	"S05": "no credential is attached", "S06": "no credential is attached", "S07": "no credential is attached",
	"S10": "there is no image", "S11": "there is no mediator",
}

// TestCorpusIsCovered holds the probes to a public collection of what a process
// inside can try: each is a probe here, or there is a reason.
func TestCorpusIsCovered(t *testing.T) {
	rows := corpora.Rows(t, "boundary_probes.tsv")
	if len(rows) < 50 {
		t.Fatalf("the corpus has only %d rows", len(rows))
	}
	for _, row := range rows {
		id := row["id"]
		_, isProbe := Find(id)
		_, excused := notFromInside[id]
		if isProbe == excused {
			t.Errorf("%s: a probe here: %v, excused: %v", id, isProbe, excused)
		}
	}
}
