import { expect, test } from "bun:test";
import { glossaryProblems } from "./glossary.ts";

const entry = (term: string) => `- **${term}** (\`a.ts\`): One sentence with a.ts in\n  it. Another one.\n`;
const problemsOf = (text: string) => glossaryProblems(`# Glossary\n\nText.\n\n${text}`, (path) => path === "a.ts");

test("a glossary of 17 terms passes, and one more does not", () => {
  const terms = Array.from({ length: 17 }, (_, i) => entry(`term ${i}`)).join("");
  expect(problemsOf(terms)).toEqual([]);
  expect(problemsOf(terms + entry("more"))).toEqual(["docs/glossary.md: 18 terms, 17 are the limit"]);
});

test.each([
  ["- **term** (`b.ts`): One sentence.", '"term" names b.ts, which does not exist'],
  ["- **term** (`a.ts`): One. Two. Three.", '"term" has 3 sentences, not one or two'],
  ["- **term** (`a.ts`): no full stop", '"term" has 0 sentences, not one or two'],
  ["- term: One sentence.", 'write "term: One sentence." as - **term** (`file`): explanation'],
])("%j is refused", (text, problem) => {
  expect(problemsOf(text)).toEqual([`docs/glossary.md: ${problem}`]);
});
