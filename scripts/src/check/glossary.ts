/** Checks docs/glossary.md: few terms, each with a file that exists and one or two sentences. @module */
/** More terms than this mean that names in the code are at fault. */
const MAX_TERMS = 17;

export function glossaryProblems(text: string, fileExists: (path: string) => boolean): readonly string[] {
  const entries = text.split(/^- /m).slice(1).map((entry) => entry.replace(/\s+/g, " ").trim());
  const problems = entries.length > MAX_TERMS ? [`${entries.length} terms, ${MAX_TERMS} are the limit`] : [];
  for (const entry of entries) {
    const [, term, path, explanation = ""] = /^\*\*(.+?)\*\* \(`(.+?)`\): (.+)$/.exec(entry) ?? [];
    const sentences = explanation.match(/[.](?= |$)/g)?.length ?? 0;
    if (path === undefined) problems.push(`write "${entry.slice(0, 40)}" as - **term** (\`file\`): explanation`);
    else if (!fileExists(path)) problems.push(`"${term}" names ${path}, which does not exist`);
    else if (sentences < 1 || sentences > 2) problems.push(`"${term}" has ${sentences} sentences, not one or two`);
  }
  return problems.map((problem) => `docs/glossary.md: ${problem}`);
}
