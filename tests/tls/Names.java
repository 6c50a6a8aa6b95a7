import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import java.util.Scanner;
import javax.security.auth.x500.X500Principal;

/** Reads certificates, one a line as Base64 of DER; prints the subject of each as Kafka gets it, as Base64 of UTF-8. */
public class Names {
  public static void main(String[] arguments) throws Exception {
    CertificateFactory factory = CertificateFactory.getInstance("X.509");
    Scanner lines = new Scanner(System.in);
    while (lines.hasNextLine()) {
      byte[] der = Base64.getDecoder().decode(lines.nextLine());
      X509Certificate certificate = (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(der));
      String name = certificate.getSubjectX500Principal().getName(X500Principal.RFC2253);
      System.out.println(Base64.getEncoder().encodeToString(name.getBytes(StandardCharsets.UTF_8)));
    }
  }
}
