/** For the text of programs that give up rights: `outcome(attempt)` is `done`, or the code of the error. @module */
export const OUTCOME = `
const outcome = (attempt) => {
  try {
    attempt();
    return "done";
  } catch ({ code }) {
    return code;
  }
};`;
