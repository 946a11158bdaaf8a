//! TodoWrite: the model's list, as it wants it shown.

use serde_json::Value;

use super::input::Input;
use super::{Failure, Output};
use crate::wire::message::Todo;

/// `- [x] …` for what is completed, `- [ ] …` for the rest; the summary is `completed/total`.
pub(crate) fn todo_write(input: &Input) -> Result<Output, Failure> {
    // Some models send the list as a string that holds it.
    let parsed;
    let todos = match input.value("todos") {
        Some(Value::String(text)) => {
            parsed = serde_json::from_str::<Value>(text).map_err(|_| not_a_list())?;
            &parsed
        }
        Some(value) => value,
        None => return Err(Failure::new("no todos provided")),
    };
    let mut done = 0;
    let mut lines = Vec::new();
    for todo in todos.as_array().ok_or_else(not_a_list)? {
        let content = todo.get("content").and_then(Value::as_str).ok_or_else(not_a_list)?;
        let completed = match todo.get("status").and_then(Value::as_str) {
            None | Some("pending" | "in_progress") => false,
            Some("completed") => true,
            Some(other) => {
                return Err(Failure::new(format!(
                    "unknown status \"{other}\"; use pending, in_progress or completed"
                )));
            }
        };
        done += usize::from(completed);
        // One line each: a line feed in an item would look like another item.
        let content = content.split_whitespace().collect::<Vec<_>>().join(" ");
        lines.push(format!("- [{}] {content}", if completed { 'x' } else { ' ' }));
    }
    let checklist = lines.join("\n");
    let todo = Todo { checklist: checklist.clone(), summary: format!("{done}/{}", lines.len()) };
    Ok(Output { todo: Some(todo), ..Output::plain(checklist) })
}

fn not_a_list() -> Failure {
    Failure::new("todos must be a list of objects with content and status")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tools::testing::World;

    #[test]
    fn a_list_becomes_a_checklist_with_its_summary() {
        let world = World::new();
        let todos = json!([{"content":"A","status":"completed"},{"content":"B\n b","status":"in_progress"},{"content":"C"}]);
        let output = world.run("TodoWrite", json!({ "todos": todos }));
        assert_eq!(output.content, "- [x] A\n- [ ] B b\n- [ ] C");
        assert_eq!(output.todo.clone().map(|todo| todo.summary).as_deref(), Some("1/3"));
        assert_eq!(world.run("TodoWrite", json!({ "todos": todos.to_string() })), output);
        assert_eq!(world.ok("TodoWrite", json!({"todos":[]})), "");
    }

    #[test]
    fn what_is_no_list_is_refused_by_name() {
        let world = World::new();
        for todos in [json!("x"), json!({}), json!([1]), json!([{"status":"pending"}])] {
            assert!(world.err("TodoWrite", json!({ "todos": todos })).contains("list of objects"));
        }
        assert_eq!(world.err("TodoWrite", json!({})), "Error: no todos provided");
        let odd = json!({"todos":[{"content":"A","status":"done"}]});
        assert!(world.err("TodoWrite", odd).contains("unknown status \"done\""));
    }
}
