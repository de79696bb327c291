//! The server is who it says it is, or there is no connection.

use ensue_conformance::postgres::PrivatePostgres;
use ensue_core::{NewEvent, Store, StoreError};
use ensue_stores::postgres::{PostgresOptions, PostgresStore};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio_postgres::NoTls;

fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl").current_dir(folder).args(arguments.split(' ')).output().expect("openssl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Two authorities, and a certificate for `localhost` by the first.
fn make_certificates(folder: &Path) {
    for name in ["ours", "other"] {
        let subject = format!("-subj /CN={name} -keyout {name}.key -out {name}.pem");
        openssl(folder, &format!("req -x509 -newkey rsa:2048 -nodes -days 2 {subject}"));
    }
    openssl(folder, "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr");
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    let by = "-CA ours.pem -CAkey ours.key -CAcreateserial -extfile names -days 2";
    openssl(folder, &format!("x509 -req -in server.csr {by} -out server.pem"));
}

async fn try_open(url: &str) -> Result<(), StoreError> {
    let options = PostgresOptions { unavailable_after: Duration::from_secs(2), ..PostgresOptions::default() };
    let store = PostgresStore::open(url, options).await?;
    store.bounds().await?;
    store.close().await;
    Ok(())
}

#[tokio::test]
async fn verify_full_wants_the_right_authority_and_the_right_name() {
    let server = PrivatePostgres::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    make_certificates(folder.path());
    // The server reads its key as its own user, and wants nobody else to.
    let owner = std::fs::metadata(server.folder()).unwrap();
    for name in ["server.key", "server.pem"] {
        let place = server.folder().join(name);
        std::fs::copy(folder.path().join(name), &place).unwrap();
        Command::new("chmod").arg("600").arg(&place).status().unwrap();
        if owner.uid() != std::fs::metadata(&place).unwrap().uid() {
            chown(&place, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
    }
    let (admin, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    for (setting, value) in [
        ("ssl_cert_file", server.folder().join("server.pem").display().to_string()),
        ("ssl_key_file", server.folder().join("server.key").display().to_string()),
        ("ssl", "on".to_string()),
    ] {
        admin.batch_execute(&format!("ALTER SYSTEM SET {setting} = '{value}'")).await.unwrap();
    }
    admin.execute("SELECT pg_reload_conf()", &[]).await.unwrap();
    let ssl_is_on =
        async || admin.query_one("SELECT current_setting('ssl') = 'on'", &[]).await.unwrap().get::<_, bool>(0);
    while !ssl_is_on().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    let by_address = server.url();
    let by_name = by_address.replace("127.0.0.1", "localhost");
    let trusting = |name: &str| format!("sslrootcert={}", folder.path().join(name).display());
    let (ours, other) = (trusting("ours.pem"), trusting("other.pem"));
    let refused = |error: StoreError| {
        let text = error.to_string();
        assert!(text.contains("certificate") && text.contains("sslrootcert"), "{text}");
    };

    try_open(&format!("{by_name}?sslmode=verify-full&{ours}")).await.unwrap();
    refused(try_open(&format!("{by_name}?sslmode=verify-full&{other}")).await.unwrap_err());
    refused(try_open(&format!("{by_address}?sslmode=verify-full&{ours}")).await.unwrap_err());
    try_open(&format!("{by_address}?sslmode=verify-ca&{ours}")).await.unwrap();
    refused(try_open(&format!("{by_address}?sslmode=verify-ca&{other}")).await.unwrap_err());
    try_open(&format!("{by_address}?sslmode=require")).await.unwrap();
    try_open(&format!("{by_address}?sslmode=prefer")).await.unwrap();
    try_open(&format!("{by_address}?sslmode=disable")).await.unwrap();

    // And what is called encrypted is.
    let url = format!("{by_address}?sslmode=require&application_name=encrypted");
    let store = PostgresStore::open(&url, PostgresOptions::default()).await.unwrap();
    store.bounds().await.unwrap();
    let plain = "SELECT count(*) FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) \
                 WHERE application_name = 'encrypted' AND NOT ssl";
    let large = "x".repeat(900_000);
    for payload in ["small", &large, &large, "small"] {
        let entry = || NewEvent::new("t").payload(&payload).check().unwrap();
        store.append(vec![entry(), entry()]).await.unwrap();
    }
    assert_eq!(store.bounds().await.unwrap().last, 8);
    assert_eq!(admin.query_one(plain, &[]).await.unwrap().get::<_, i64>(0), 0);
    store.close().await;
}
