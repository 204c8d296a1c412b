//! A daemon that speaks with a server and is there to be killed: says where the server began once that has answered a thousand times, and waits.
//! `holder STATE WORKSPACE MARK`

#![allow(clippy::unwrap_used, reason = "it is there to be killed")]

use std::{collections::BTreeMap, io::Write, path::PathBuf};

use palyra_gate::{RunningServer, ServerPlan};
use palyra_tests::Setup;
use palyra_types::{EgressEnforcementMode, ObjectId};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// Says where it is, has others run besides, and then says each line again.
const SERVER: &str = "pwd; setsid sleep 600 > /dev/null 2>&1 < /dev/null & exec cat";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (state, workspace) = (arguments.next().unwrap(), arguments.next().unwrap());
    let mark = arguments.next().unwrap().to_str().unwrap().to_owned();
    let setup = Setup {
        journal: &state.join("journal"),
        state: &state,
        workspace: &workspace,
        config: "",
        policies: None,
        pin: None,
        clock: None,
        faults: None,
    };
    let gate = setup.open().await.gate;
    gate.recover().await.unwrap();
    let plan = ServerPlan {
        name: ObjectId::parse("held").unwrap(),
        command: ["sh", "-c", SERVER].map(str::to_owned).to_vec(),
        workspace: None,
        env: BTreeMap::from([("MARK".to_owned(), mark)]),
        secrets: BTreeMap::new(),
        hosts: Vec::new(),
        egress: EgressEnforcementMode::Strict,
    };
    let RunningServer { mut input, output, handle } = gate.start_server(plan).await.unwrap();
    let mut output = BufReader::new(output);
    let mut place = String::new();
    output.read_line(&mut place).await.unwrap();
    for number in 0..1_000 {
        let asked = format!("{number}\n");
        input.write_all(asked.as_bytes()).await.unwrap();
        let mut answer = String::new();
        output.read_line(&mut answer).await.unwrap();
        assert_eq!(answer, asked);
    }
    let mut stdout = std::io::stdout();
    stdout.write_all(place.as_bytes()).unwrap();
    stdout.flush().unwrap();
    std::future::pending::<()>().await;
    drop(handle);
}
