import { SharedValues } from "../shared_values.ts";

/** Keys such as `constructor` are labels too: an object would find them in its prototype. */
export type Labels = ReadonlyMap<string, string>;

/** Labels as the API has them. */
export type LabelObject = Readonly<Record<string, string>>;

export const NO_LABELS: Labels = new Map();

const sharedLabels = new SharedValues<Labels>();

export function labelsOf(object: LabelObject | undefined): Labels {
  if (object === undefined) return NO_LABELS;
  const labels = new Map(Object.entries(object).sort(([a], [b]) => a < b ? -1 : 1));
  return sharedLabels.share(labelsText(labels), labels);
}

/** The same for the same labels. Neither keys nor values of the API have `=` or `,`. */
export function labelsText(labels: Labels): string {
  let text = "";
  for (const [key, value] of labels) text += `${text && ","}${key}=${value}`;
  return text;
}
