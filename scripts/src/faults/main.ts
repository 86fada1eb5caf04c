/** The body of `scripts/faults`, see its usage. @module */
import { runCampaign } from "../harness/campaign.ts";
import { parseScriptOptions, seedOf } from "../harness/options.ts";
import { newRandomSource } from "../harness/random.ts";
import { formatFaults } from "./report.ts";
import { FAULT_SECTIONS, runSection } from "./section.ts";

const USAGE = `usage: scripts/faults [--sections N] [--sample N] [--jobs N] [WORD…]
  --sections N  so many sections at random; default: all
  --sample N    so many faults of each section, all kinds in turn; default: all
  --seed N      chooses them; default: another one each time
  --jobs N      sections at a time; default: 2
  WORD          faults whose names have all these words: shim, worker, server, heal; run, exec; first-add, add, del, gc, damage; bridge, …; sendto, sendto#12; KILL, TERM, EIO, …
CNI_BINARY names another program than dist/cni.
Sections: ${FAULT_SECTIONS.join(", ")}`;

const options = parseScriptOptions(USAGE);
const { words, count } = options;
const sample = count("sample", Infinity);
const seed = seedOf(options);

function chooseSections(): readonly string[] {
  // The commands of "damage" are no sections of their own.
  const names = words.includes("damage")
    ? ["damage", "run", "exec"]
    : FAULT_SECTIONS.flatMap((name) => name.split(" "));
  const chosen = words.filter((word) => names.includes(word));
  const sections = FAULT_SECTIONS.filter((name) => chosen.every((word) => name.split(" ").includes(word)));
  return newRandomSource(seed).shuffle(sections).slice(0, count("sections", FAULT_SECTIONS.length));
}

await runCampaign({
  options,
  parts: chooseSections(),
  lanes: count("jobs", 2),
  seed,
  work: (section) => runSection(section, { sample, seed, words }),
  summary: (reports) => formatFaults(reports, ({ kind }) => kind),
});
